"""Names of the limiter's keys; docs/redis-keys.md says what is in them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from limiter.errors import BadLimits

PREFIX = "rewardpool:limit:"
PARTS = ("state", "leases", "calls", "queue", "owners", "settings", "history")
SETTINGS_PATTERN = f"{PREFIX}{{*}}:settings"
NAME_MAX = 200


def encode_name(name: str) -> str:
    """Return a name as it stands in keys: braces, spaces and non-ASCII as %XX."""
    if not isinstance(name, str) or not name or len(name) > NAME_MAX:
        raise BadLimits(f"name: must be 1 to {NAME_MAX} characters, got {name!r}")
    try:
        return quote(name, safe="-._~:/@+", errors="strict")
    except UnicodeEncodeError:
        raise BadLimits(f"name: is not valid text, got {name!r}") from None


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one limit; all share one hash tag, so one node holds them."""

    name: str
    all: tuple[str, ...]
    mail_prefix: str

    @classmethod
    def of(cls, name: str) -> Keys:
        """Return the keys of the limit of that name."""
        base = f"{PREFIX}{{{encode_name(name)}}}:"
        return cls(name, tuple(base + part for part in PARTS), f"{base}m:")

    @property
    def settings(self) -> str:
        """HASH: the limit as set and declared; the one key without an expiry."""
        return self.all[PARTS.index("settings")]

    @property
    def history(self) -> str:
        """HASH: counters by minute, for an hour."""
        return self.all[PARTS.index("history")]

    def mail(self, owner: str) -> str:
        """LIST: what an owner is told, read by that owner alone."""
        return self.mail_prefix + owner


def name_of(settings_key: str) -> str:
    """Return the limit's name from the name of its settings key."""
    return unquote(settings_key.removeprefix(PREFIX + "{").removesuffix("}:settings"))
