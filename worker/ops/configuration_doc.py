"""Write docs/configuration.md: `python -m worker.ops.configuration_doc`, from the root."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from worker.settings import FILE, PREFIX, Settings

TARGET = Path("docs/configuration.md")
#: What stands for the name a user chooses, by the field that holds the mapping.
PLACEHOLDERS = {"limits": "NAME", "sources": '"DATA_SOURCE"'}

_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
}

INTRODUCTION = f"""# Configuration

Written from the settings classes by `python -m worker.ops.configuration_doc`.
Do not edit it: a test fails when it is not current.

Settings come from `{FILE}`.
The file is the one given by `--config`, else by `REWARDPOOL_CONFIG`, else the one in the folder.
Every key can also be set in the environment, which wins over the file.
A variable's name is `{PREFIX}`, then the section, two underscores and the key, in capitals.
A value that begins with `[` or `{{` is read as JSON.
Names of limits and of data sources that come from the environment are in small letters.
Unknown keys are errors that name the nearest known one; so are values that make no sense.
"""


def written() -> str:
    """Return the whole page."""
    return INTRODUCTION + "".join(_sections(Settings, ()))


def _sections(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    """A table for each section; what nests follows what holds it."""
    plain = {name: one for name, one in model.model_fields.items() if _inner(one) is None}
    if path and plain:
        yield f"\n## `[{'.'.join(path)}]`\n\n{_first_line(model)}\n\n"
        yield "| key | values | default | says | environment |\n| --- | --- | --- | --- | --- |\n"
        for name, one in plain.items():
            yield _row(path, name, one)
    for name, one in model.model_fields.items():
        inner = _inner(one)
        if inner is not None:
            named = (PLACEHOLDERS[name],) if get_origin(one.annotation) is dict else ()
            yield from _sections(inner, (*path, name, *named))


def _row(path: tuple[str, ...], name: str, one: FieldInfo) -> str:
    variable = PREFIX + "__".join((*(part.strip('"') for part in path), name)).upper()
    says = (one.description or "").replace("|", "\\|")
    return f"| `{name}` | {_values(one)} | {_default(one)} | {says} | `{variable}` |\n"


def _inner(one: FieldInfo) -> type[BaseModel] | None:
    """The section a field holds, directly or by name."""
    kind: Any = one.annotation
    if get_origin(kind) is dict:
        kind = get_args(kind)[1]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _values(one: FieldInfo) -> str:
    shown = ", ".join([*_kinds(one.annotation), *_bounds(one.metadata)])
    return shown.replace("|", "\\|")


def _kinds(kind: Any) -> list[str]:
    origin = get_origin(kind)
    if origin is Annotated:
        return [*_kinds(get_args(kind)[0]), *_bounds(get_args(kind)[1:])]
    if origin in (Union, UnionType):
        return [shown for part in get_args(kind) if part is not NoneType for shown in _kinds(part)]
    if origin is Literal:
        return [f"`{value}`" for value in get_args(kind)]
    if origin is dict or kind is dict:
        return ["table"]
    if origin in (list, tuple):
        return ["list"]
    return [_WORDS[kind]]


def _bounds(rules: Iterable[Any]) -> list[str]:
    inner = [part for rule in rules for part in getattr(rule, "metadata", [rule])]
    return [said for rule in inner if (said := _bound(rule)) is not None]


def _bound(rule: Any) -> str | None:
    for sign, attribute in (("≥", "ge"), (">", "gt"), ("≤", "le"), ("<", "lt")):
        value = getattr(rule, attribute, None)
        if value is not None:
            return f"{sign} {value:g}"
    return None


def _default(one: FieldInfo) -> str:
    if one.is_required():
        return "required"
    value = one.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ({}, [], ()) else "empty"


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def main() -> int:
    """Write the file; run from the project's root."""
    TARGET.write_text(written(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
