"""Plain values as JSON between the program and its checks; everything else goes as a reference.

What arrives is built from pristine built-in types only, so a value cannot bring behaviour along: a
text whose class redefines equality arrives as text.
"""

from __future__ import annotations

import collections
import datetime
import importlib
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

DEEPEST = 60
_SMALL_INT_BITS = 10_000
_DATES = (datetime.datetime, datetime.date, datetime.time)

if TYPE_CHECKING:
    Tagged = Any
    Refer = Callable[[Any], dict[str, Any]]
    Resolve = Callable[[dict[str, Any]], Any]


def encode(value: Any, refer: Refer, depth: int = 0) -> Tagged:
    """Return the JSON form of a value; `refer` makes the form of what is not plain."""
    if value is None or value is True or value is False:
        return value
    if depth > DEEPEST:
        return refer(value)
    for kind, make in _ENCODERS:
        if isinstance(value, kind):
            return make(value, lambda item: encode(item, refer, depth + 1))
    special = _encode_number(value) or _encode_array(value)
    return refer(value) if special is None else special


def decode(form: Tagged, resolve: Resolve) -> Any:
    """Return the value of a JSON form; `resolve` makes what stands for a reference."""
    if isinstance(form, list):
        return [decode(item, resolve) for item in form]
    if not isinstance(form, dict):
        return form
    make = _DECODERS.get(form.get("$"))
    if make is None:
        return resolve(form)
    return make(form, lambda item: decode(item, resolve))


def _tag(name: str, content: Any, **more: Any) -> dict[str, Any]:
    return dict(more, **{"$": name, "v": content})


def _text(value: str, _: Any) -> Tagged:
    return str.__str__(value)


def _int(value: int, _: Any) -> Tagged:
    whole = int.__int__(value)
    return whole if whole.bit_length() < _SMALL_INT_BITS else _tag("int", hex(whole))


def _float(value: float, _: Any) -> Tagged:
    number = float.__float__(value)
    return number if math.isfinite(number) else _tag("float", float.__repr__(number))


def _items(values: Any, go: Any) -> list[Any]:
    return [go(item) for item in values]


def _tuple(value: Any, go: Any) -> Tagged:
    fields = getattr(type(value), "_fields", None)
    items = _items(tuple.__iter__(value), go)
    if isinstance(fields, tuple) and len(fields) == len(items):
        return _tag("named", items, n=type(value).__name__, f=list(fields))
    return _tag("tuple", items)


def _dict(value: Any, go: Any) -> Tagged:
    kind = "dict"
    if isinstance(value, collections.Counter):
        kind = "counter"
    elif isinstance(value, collections.OrderedDict):
        kind = "ordered"
    return _tag(kind, [[go(key), go(item)] for key, item in dict.items(value)])


_ENCODERS: Any = (
    (str, _text),
    (int, _int),
    (float, _float),
    (list, lambda value, go: _items(list.__iter__(value), go)),
    (tuple, _tuple),
    (dict, _dict),
    (set, lambda value, go: _tag("set", _items(set.__iter__(value), go))),
    (frozenset, lambda value, go: _tag("frozenset", _items(frozenset.__iter__(value), go))),
    (bytes, lambda value, go: _tag("bytes", bytes.hex(value))),
    (bytearray, lambda value, go: _tag("bytearray", bytearray.hex(value))),
    (complex, lambda value, go: _tag("complex", [go(value.real), go(value.imag)])),
    (range, lambda value, go: _tag("range", [value.start, value.stop, value.step])),
    (collections.deque, lambda value, go: _tag("deque", _items(value, go), m=value.maxlen)),
    (
        datetime.timedelta,
        lambda value, go: _tag("delta", [value.days, value.seconds, value.microseconds]),
    ),
    (_DATES, lambda value, go: _tag("date", value.isoformat(), k=_date_kind(value))),
)


def _date_kind(value: Any) -> str:
    return next(kind.__name__ for kind in _DATES if isinstance(value, kind))


def _make_named(form: Any, go: Any) -> Any:
    make: Any = collections.namedtuple
    made = make(str(form["n"]), [str(name) for name in form["f"]])
    return made(*map(go, form["v"]))


def _pairs(form: Any, go: Any) -> Any:
    return ((go(key), go(item)) for key, item in form["v"])


def _make_date(form: Any, _: Any) -> Any:
    kind = next(kind for kind in _DATES if kind.__name__ == form["k"])
    return kind.fromisoformat(form["v"])


_DECODERS: dict[Any, Any] = {
    "int": lambda form, go: int(form["v"], 16),
    "float": lambda form, go: float(form["v"]),
    "tuple": lambda form, go: tuple(map(go, form["v"])),
    "named": _make_named,
    "dict": lambda form, go: dict(_pairs(form, go)),
    "counter": lambda form, go: collections.Counter(dict(_pairs(form, go))),
    "ordered": lambda form, go: collections.OrderedDict(_pairs(form, go)),
    "set": lambda form, go: set(map(go, form["v"])),
    "frozenset": lambda form, go: frozenset(map(go, form["v"])),
    "bytes": lambda form, go: bytes.fromhex(form["v"]),
    "bytearray": lambda form, go: bytearray.fromhex(form["v"]),
    "complex": lambda form, go: complex(*map(go, form["v"])),
    "range": lambda form, go: range(*form["v"]),
    "deque": lambda form, go: collections.deque(map(go, form["v"]), form["m"]),
    "decimal": lambda form, go: importlib.import_module("decimal").Decimal(form["v"]),
    "fraction": lambda form, go: importlib.import_module("fractions").Fraction(form["v"]),
    "delta": lambda form, go: datetime.timedelta(*form["v"]),
    "date": _make_date,
    "array": lambda form, go: _decode_array(form, go),
}


def _encode_number(value: Any) -> Tagged:
    """Exact numbers; their modules are slow to import and there if there is such a value."""
    for name, kind in (("decimal", "Decimal"), ("fractions", "Fraction")):
        module = sys.modules.get(name)
        if module is not None and isinstance(value, getattr(module, kind, ())):
            return _tag(kind.lower(), str(value))
    return None


def _encode_array(value: Any) -> Tagged:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "biufcU":
        return _tag("array", encode(value.tolist(), lambda item: {"$": "none"}), d=value.dtype.str)
    if isinstance(value, numpy.generic):
        return encode(value.item(), lambda item: {"$": "none"})
    return None


def _decode_array(form: Any, go: Any) -> Any:
    import numpy

    return numpy.array(go(form["v"]), dtype=form["d"])
