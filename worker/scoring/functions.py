"""Finding a user's function or class: `file.py:name`, `package.module:name`, `builtin:name`.

Workers and their helper processes import by name; nothing is ever pickled.
A file is executed once a process, however many names are taken from it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import inspect
import sys
from hashlib import sha1
from pathlib import Path
from typing import Any

from worker.rewards.errors import BadInput
from worker.rewards.registry import PREFIX as BUILTIN
from worker.rewards.registry import builtin
from worker.settings import SettingsError


def load(spec: str, *, what: str = "function") -> Any:
    """Return what a spec names. Raises SettingsError that names the spec and the fault.

    `package.module.name` without a colon is read as `package.module:name`.
    """
    if spec.startswith(BUILTIN):
        return _builtin(spec, what)
    place, colon, name = spec.rpartition(":")
    if not colon:
        place, _, name = spec.rpartition(".")
    if not place or not name:
        raise SettingsError(
            f"reward.{what}: {spec!r} is none of file.py:name, package.module:name, builtin:name"
        )
    module = _from_file(place, spec, what) if _is_file(place) else _by_name(place, spec, what)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise SettingsError(f"reward.{what}: {spec!r}: {place} has no {name!r}") from None
    if not callable(found):
        raise SettingsError(f"reward.{what}: {spec!r} is a {type(found).__name__}, not callable")
    return found


def _builtin(spec: str, what: str) -> Any:
    try:
        return builtin(spec).load()
    except BadInput as error:
        raise SettingsError(f"reward.{what}: {error}") from None
    except ImportError as error:
        raise SettingsError(f"reward.{what}: {spec!r}: {error}") from error


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _by_name(place: str, spec: str, what: str) -> Any:
    try:
        return importlib.import_module(place.removeprefix("pkg://"))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise SettingsError(f"reward.{what}: {spec!r}: {_shown(error)}") from error


def _from_file(place: str, spec: str, what: str) -> Any:
    if place.startswith("pkg://"):
        return _by_name(place.removeprefix("pkg://"), spec, what)
    path = Path(place.removeprefix("file://")).expanduser().resolve()
    name = f"{path.stem}_{sha1(str(path).encode(), usedforsecurity=False).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    described = importlib.util.spec_from_file_location(name, path)
    if described is None or described.loader is None or not path.is_file():
        raise SettingsError(f"reward.{what}: {spec!r}: there is no file {path}")
    module = importlib.util.module_from_spec(described)
    sys.modules[name] = module
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)  # what stands beside the file can be imported by it
    try:
        described.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise SettingsError(f"reward.{what}: {spec!r}: {_shown(error)}") from error
    return module


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def is_async(function: Any) -> bool:
    """Whether calling it surely returns an awaitable: seen through partials, methods, `__call__`.

    A plain wrapper around an async function cannot be told from outside; what it returns can.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if asyncio.iscoroutinefunction(function) or inspect.iscoroutinefunction(function):
        return True
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isclass(function):
        return False
    return inspect.iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004
