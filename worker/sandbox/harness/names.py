"""The names in a check: the program's, the language's, or a library's."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
import types
from typing import Any

from worker.sandbox.harness.proxies import Link

#: Names that mean something everywhere, by the module they are from; `bundle` fills it in.
WELL_KNOWN: dict[str, str] = {}
_ALIASES = {"np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas"}


class Names:
    """Which of a check's names are the program's, and which are the language's own.

    A name of the language or of a well-known library is only taken from the program if the check
    uses no other name of it: a task may be to write `sum`, but a program that also defines `sum`
    does not get to judge `sum(f(x))`.
    """

    def __init__(self, link: Link, tree: ast.AST) -> None:
        self._link = link
        loaded, stored = _names_of(tree)
        self._wanted = sorted(loaded - stored)

    def space(self) -> dict[str, Any]:
        """Return the globals of the check."""
        answer = self._ask(self._wanted)
        own = {name for name, form in answer.items() if form.get("kind") != "module"}
        subjects = {name for name in own if _well_known(name) is None}
        space: dict[str, Any] = {"__name__": "checks", "__builtins__": builtins}
        for name, form in answer.items():
            found = self._take(name, form, shadowed=bool(subjects))
            if found is not _ABSENT:
                space[name] = found
        _install_module(self._link)
        return space

    def _ask(self, names: list[str]) -> dict[str, Any]:
        answer = self._link.peer.ask({"q": "names", "names": names})
        found = answer.get("names")
        return found if isinstance(found, dict) else {}

    def _take(self, name: str, form: Any, shadowed: bool) -> Any:
        known = _well_known(name)
        if known is not None and (shadowed or form.get("kind") != "own"):
            return known
        if form.get("kind") == "module":
            return _library(str(form.get("module")))
        self._link.used = True
        return self._link.describe(form.get("value"))


_ABSENT = object()


def _names_of(tree: ast.AST) -> Any:
    loaded: set[str] = set()
    stored: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else stored).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stored.add(node.name)
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
        elif isinstance(node, ast.alias):
            stored.add((node.asname or node.name).split(".")[0])
    return loaded, stored


def _well_known(name: str) -> Any:
    """Return what a name means everywhere: _ABSENT if not installed, None if it means nothing."""
    if hasattr(builtins, name):
        return getattr(builtins, name)
    if name in _ALIASES:
        return _library(_ALIASES[name])
    home = WELL_KNOWN.get(name)
    if home is None:
        return None
    return _library(name) if home == name else getattr(_library(home), name, _ABSENT)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception:  # noqa: BLE001
        return _ABSENT


def _install_module(link: Link) -> None:
    """Let checks import the program as `solution`."""
    module = types.ModuleType("solution")

    def get(name: str) -> Any:
        answer = link.peer.ask({"q": "names", "names": [name]})
        form = (answer.get("names") or {}).get(name)
        if not isinstance(form, dict) or "value" not in form:
            raise AttributeError(name)
        link.used = True
        return link.describe(form["value"])

    module.__getattr__ = get  # type: ignore[method-assign]
    sys.modules["solution"] = module
