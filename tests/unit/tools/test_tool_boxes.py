"""Bounding boxes: clamped, grown, refused."""

from __future__ import annotations

import pytest

from queue_client.tools.boxes import BadBox, fit_box


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ([10, 10, 60, 50], (50, 40)),
        ([10, 10, 20, 15], (56, 28)),
        ([150, 80, 400, 400], (70, 28)),
        ([190, 90, 200, 100], (28, 28)),
        ([-50, -50, 500, 500], (200, 100)),
        ((0.4, 0.4, 30.2, 30.2), (31, 31)),
        (["0", "0", "50", "50"], (50, 50)),
    ],
)
def test_a_region_of_a_200_by_100_image_has_this_size(box: object, size: tuple[int, int]) -> None:
    left, top, right, bottom = fit_box(box, 200, 100)
    assert (right - left, bottom - top) == size
    assert 0 <= left < right <= 200
    assert 0 <= top < bottom <= 100


def test_a_grown_region_keeps_its_centre_where_it_fits() -> None:
    assert fit_box([90, 40, 100, 50], 200, 100) == (81, 31, 109, 59)


@pytest.mark.parametrize(
    "box",
    [
        [0, 0, 5, 100],
        [50, 50, 40, 60],
        [50, 50, 50, 60],
        [300, 10, 400, 20],
        [0, 0, 200, 1.5],
        [0, 0, 10],
        "0,0,10,10",
        None,
        [0, 0, "x", 10],
        [0, 0, float("nan"), 10],
        [0, 0, float("inf"), 10],
    ],
)
def test_what_cannot_be_cut_out_is_refused(box: object) -> None:
    with pytest.raises(BadBox):
        fit_box(box, 200, 100)


def test_a_small_image_has_no_region() -> None:
    with pytest.raises(BadBox):
        fit_box([0, 0, 20, 20], 20, 20)
