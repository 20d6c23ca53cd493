"""Finding the program in a response.

Rules, in this order:

1. Fences are lines of three or more backticks or tildes, indented by up to three spaces; a fence
   closes with the same character, at least as long. A fence that never closes ends with the text.
2. Of the fences labelled with the wanted language (any case, aliases below), the last one counts:
   models correct themselves.
3. Else, of the fences without a label, the last one.
4. Else, of the fences with another label, none: that is another language, or output.
5. Without any fence the whole text counts, if it is a program: for Python, if it parses and holds
   more than names and literals. Otherwise there is no code, and the answer is wrong, not broken.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass

_OPEN = re.compile(r"^( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_LONGEST_UNFENCED = 100_000  # characters tried as a program when there is no fence

ALIASES = {
    "python": {"py", "python", "python3", "py3", "python2", "ipython"},
    "cpp": {"cpp", "c++", "cxx", "cc", "c"},
    "nodejs": {"nodejs", "javascript", "js", "node"},
    "typescript": {"typescript", "ts"},
    "bash": {"bash", "sh", "shell"},
    "go": {"go", "golang"},
    "csharp": {"csharp", "c#", "cs"},
    "rust": {"rust", "rs"},
    "ruby": {"ruby", "rb"},
    "kotlin_script": {"kotlin", "kotlin_script", "kts", "kt"},
    "perl": {"perl", "pl"},
    "R": {"r"},
}


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block: its label in lower case and its text."""

    label: str
    text: str


def extract_code(response: str, language: str = "python") -> str | None:
    """Return the program of a response by the rules above, or None."""
    blocks = fences(response)
    if not blocks:
        return _unfenced(response, language)
    wanted = ALIASES.get(language, set()) | {language.lower()}
    for labels in (wanted, {""}):
        matching = [block.text for block in blocks if block.label in labels]
        if matching:
            return matching[-1]
    return None


def fences(text: str) -> list[Fence]:
    """Return the fenced blocks of a text in order."""
    found: list[Fence] = []
    body: list[str] = []
    opened: tuple[str, str, int] | None = None  # marker, label, indent
    for line in text.replace("\r\n", "\n").split("\n"):
        if opened is None:
            start = _OPEN.match(line)
            if start:
                label = start[3].strip("{}.").split(",")[0].lower()
                opened, body = (start[2], label, len(start[1])), []
        elif _closes(line, opened[0]):
            found.append(_fence(opened, body))
            opened = None
        else:
            body.append(line)
    if opened is not None:
        found.append(_fence(opened, body))
    return found


def _closes(line: str, marker: str) -> bool:
    mark = line.strip()
    return len(mark) >= len(marker) and set(mark) == {marker[0]} and not line.startswith("    ")


def _fence(opened: tuple[str, str, int], body: list[str]) -> Fence:
    _, label, indent = opened
    text = "\n".join(body)
    return Fence(label, textwrap.dedent(text) if indent else text)


def _unfenced(response: str, language: str) -> str | None:
    text = response.strip("\n")
    if not text.strip() or len(text) > _LONGEST_UNFENCED:
        return None
    if language != "python":
        return text
    return text if _is_program(text) else None


def _is_program(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    trivial = (
        ast.Constant,
        ast.Name,
        ast.Attribute,
        ast.BinOp,
        ast.UnaryOp,
        ast.Tuple,
        ast.Compare,
    )
    return any(
        not (isinstance(statement, ast.Expr) and isinstance(statement.value, trivial))
        and not isinstance(statement, ast.AnnAssign)
        for statement in tree.body
    )
