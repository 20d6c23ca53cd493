"""The Lua scripts: read from `lua/`, fragments put in, known by their SHA1."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources

VERBS = (
    "acquire",
    "release",
    "exchange",
    "settle",
    "cancel",
    "beat",
    "throttle",
    "resume",
    "configure",
    "usage",
)
_INCLUDE = re.compile(r"^-- include (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One verb: its text as Redis gets it, and the SHA1 that Redis knows it by."""

    verb: str
    text: str
    sha: str


def source(name: str) -> str:
    """Return the text of one file in `lua/`, without its ending."""
    return resources.files("lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")


def assemble(verb: str) -> str:
    """Return a verb's text with its fragments in place of the `-- include` lines."""

    def fragments(match: re.Match[str]) -> str:
        return "".join(source(name) for name in match.group(1).split())

    return _INCLUDE.sub(fragments, source(f"limit_{verb}"))


@functools.cache
def load(verb: str) -> Script:
    """Return a verb's script; read from disk once a process."""
    text = assemble(verb)
    return Script(verb, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
