"""How each language is compiled and run here; a language counts if its tools are installed."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import cache

from worker.sandbox.errors import UnsupportedLanguage


@dataclass(frozen=True, slots=True)
class Recipe:
    """The program's file and the commands, run in its folder.

    `reserves_memory` marks run-times that reserve far more addresses than they use.
    """

    file: str
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()
    reserves_memory: bool = False


_RECIPES = {
    "bash": Recipe("main.sh", ("bash", "main.sh")),
    "cpp": Recipe(
        "main.cpp", ("./main",), ("g++", "-std=c++17", "-O1", "-o", "main", "main.cpp", "-pthread")
    ),
    "go": Recipe("main.go", ("./main",), ("go", "build", "-o", "main", "main.go"), True),
    "java": Recipe(
        "Main.java",
        ("java", "-XX:+UseSerialGC", "-cp", ".", "Main"),
        ("javac", "Main.java"),
        True,
    ),
    "lua": Recipe("main.lua", ("lua", "main.lua")),
    "nodejs": Recipe("main.js", ("node", "main.js"), (), True),
    "perl": Recipe("main.pl", ("perl", "main.pl")),
    "php": Recipe("main.php", ("php", "main.php")),
    "R": Recipe("main.R", ("Rscript", "main.R")),
    "ruby": Recipe("main.rb", ("ruby", "main.rb")),
    "rust": Recipe("main.rs", ("./main",), ("rustc", "-O", "-o", "main", "main.rs")),
}


def default_python() -> str:
    """Return the interpreter behind this one: outside of any virtual environment."""
    return getattr(sys, "_base_executable", "") or sys.executable


def recipe(language: str, *, python: str) -> Recipe:
    """Return how a language runs here. Raises UnsupportedLanguage."""
    if language == "python":
        return Recipe("main.py", (python, "main.py"))
    if language not in installed():
        raise UnsupportedLanguage(language, installed() | {"python"})
    return _RECIPES[language]


@cache
def installed() -> frozenset[str]:
    """Return the languages, beside Python, whose tools are on the path."""
    return frozenset(name for name, found in _RECIPES.items() if all(map(_present, _tools(found))))


def _tools(found: Recipe) -> list[str]:
    return [command[0] for command in (found.compile, found.run) if command]


def _present(tool: str) -> bool:
    return (
        tool.startswith("./") or shutil.which(tool, path="/usr/local/bin:/usr/bin:/bin") is not None
    )
