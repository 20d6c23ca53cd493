"""Reading a tool's configuration: verl's keys and defaults, checked, and those that are ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Options:
    """A view of one tool's `config`; errors name the tool, the key and the value."""

    tool: str
    config: Mapping[str, Any]

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text, or None."""
        value = self.config.get(key, default)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "text", value)
        return value or None

    def flag(self, key: str, default: bool) -> bool:
        """True or False."""
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def whole(self, key: str, default: int, *, least: int = 1) -> int:
        """A whole number."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, f"a whole number of at least {least}", value)
        return value

    def seconds(self, key: str, default: float) -> float:
        """A time in seconds, above 0."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(key, "seconds above 0", value)
        return float(value)

    def names(self, key: str, default: list[str]) -> list[str]:
        """A list of texts."""
        value = self.config.get(key, default)
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of names", value)
        return list(value)

    def _wrong(self, key: str, expected: str, value: Any) -> ValueError:
        return ValueError(f"{self.tool}: config.{key}: {expected} expected (got {value!r})")
