"""Bounding boxes on an image: which are fit to be cut out, and how small ones grow.

A box is clamped to the image. Turned around, without area, or more than 100 times as long as wide,
it is refused. If a side is below 28 pixels, both grow by the same factor until the shorter is 28,
shrink again to fit the image, and the box is centred on the old one and shifted inside.
"""

from __future__ import annotations

import math

MIN_SIDE = 28
MAX_ASPECT = 100

Box = tuple[float, float, float, float]
PixelBox = tuple[int, int, int, int]


class BadBox(ValueError):
    """The box cannot be cut out; says why."""


def fit_box(box: object, width: int, height: int) -> PixelBox:
    """Return left, top, right, bottom in whole pixels, inside the image. Raises BadBox."""
    left, top, right, bottom = _numbers(box)
    left, top = max(0.0, left), max(0.0, top)
    right, bottom = min(float(width), right), min(float(height), bottom)
    _check(left, top, right, bottom)
    if min(right - left, bottom - top) < MIN_SIDE:
        left, top, right, bottom = _grown((left, top, right, bottom), width, height)
    pixels = (
        max(0, math.floor(left)),
        max(0, math.floor(top)),
        min(width, math.ceil(right)),
        min(height, math.ceil(bottom)),
    )
    _check(*pixels)
    if min(pixels[2] - pixels[0], pixels[3] - pixels[1]) < MIN_SIDE:
        raise BadBox(f"the region stays smaller than {MIN_SIDE} pixels in this image")
    return pixels


def _grown(box: Box, width: int, height: int) -> Box:
    left, top, right, bottom = box
    factor = MIN_SIDE / min(right - left, bottom - top)
    wide, high = (right - left) * factor, (bottom - top) * factor
    shrink = min(1.0, width / wide, height / high)
    wide, high = wide * shrink, high * shrink
    new_left = _inside((left + right) / 2 - wide / 2, wide, width)
    new_top = _inside((top + bottom) / 2 - high / 2, high, height)
    # away from binary dust, which floor and ceil would turn into a pixel
    return tuple(  # type: ignore[return-value]
        round(edge, 6) for edge in (new_left, new_top, new_left + wide, new_top + high)
    )


def _inside(start: float, length: float, whole: int) -> float:
    return min(max(0.0, start), whole - length)


def _numbers(box: object) -> Box:
    if not isinstance(box, list | tuple) or len(box) != 4:
        raise BadBox("bbox_2d must be a list of 4 numbers")
    try:
        left, top, right, bottom = (float(edge) for edge in box)
    except (TypeError, ValueError):
        raise BadBox("bbox_2d must be a list of 4 numbers") from None
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise BadBox("bbox_2d must be a list of 4 finite numbers")
    return left, top, right, bottom


def _check(left: float, top: float, right: float, bottom: float) -> None:
    if left >= right or top >= bottom:
        raise BadBox("the region is empty: left must be below right, top below bottom")
    wide, high = right - left, bottom - top
    if max(wide, high) > MAX_ASPECT * min(wide, high):
        raise BadBox(f"the region is more than {MAX_ASPECT} times as long as wide")
