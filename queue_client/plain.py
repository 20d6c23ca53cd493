"""Plain Python values: what may travel, and how numpy and torch values become plain."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

_SCALARS = frozenset({str, int, float, bool, type(None), bytes})
_MEDIA = ("PIL.", "cv2", "decord", "torchvision.", "torchcodec.")


class NotPlain(ValueError):
    """A value has no plain form; the text says where it stands and what it is."""


def plain(value: Any, name: str) -> Any:
    """Return `value` as scalars, lists and dicts with text keys; tuples become lists.

    Numpy and torch scalars and arrays become Python numbers and lists.
    Raises NotPlain, with the path from `name`, for anything else: sets, dates, images, objects.
    """
    if type(value) in _SCALARS:
        return value
    try:
        return _plain(value, name)
    except RecursionError:
        raise NotPlain(f"{name} is nested too deep") from None


def _plain(value: Any, name: str) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, np.generic):
        value = value.item()  # numpy's text and numbers are subclasses of Python's
    if isinstance(value, Mapping):
        return {
            key if type(key) is str else _key(key, name): item
            if type(item) in _SCALARS
            else _plain(item, f"{name}[{key!r}]")
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, str | bytes | bool | int | float):
        return value.value if isinstance(value, Enum) else value
    try:
        return _plain(simplify(value), name)
    except TypeError as error:
        raise NotPlain(f"{name} is {error}") from None


def simplify(value: Any) -> Any:
    """Return a numpy or torch value, a mapping or a tuple in plain Python containers.

    Raises TypeError that says what the value is; used as msgpack's `default`.
    """
    if isinstance(value, Mapping):
        return dict(value)
    kind = type(value)
    if isinstance(value, list | tuple):
        return list(value)
    where = f"{kind.__module__}."
    if where.startswith(("numpy.", "torch.")) and hasattr(value, "tolist"):
        return value.tolist()
    if where.startswith(_MEDIA):
        raise TypeError(f"{kind.__module__}.{kind.__qualname__}: images do not travel yet")
    raise TypeError(f"{kind.__module__}.{kind.__qualname__}, which is no plain value")


def _key(key: Any, name: str) -> str:
    if isinstance(key, str):
        return str(key)
    raise NotPlain(f"{name} has the key {key!r}: only text keys travel")
