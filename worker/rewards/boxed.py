r"""The content of `\boxed{…}`, found in one pass however long or nested the text is."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"\\boxed ([^\s$]+)")


def last_boxed(text: str) -> str | None:
    r"""Return what the last box holds, or None if there is none or it is never closed.

    An escaped brace (`\{`) is not counted. `\fbox{…}` and `\boxed 4` count as boxes.

    >>> last_boxed(r"\boxed{1}, or rather \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    opened = _BOX.match(text, start)
    if opened is None:
        bare = _BARE.match(text, start)
        return bare.group(1) if bare else None
    end = closing_brace(text, opened.end())
    return None if end is None else text[opened.end() : end]


def closing_brace(text: str, start: int) -> int | None:
    """Return where the brace that was opened just before `start` is closed, or None."""
    depth = 1
    for token in _BRACE.finditer(text, start):
        brace = token.group()
        depth += (brace == "{") - (brace == "}")
        if depth == 0:
            return token.start()
    return None
