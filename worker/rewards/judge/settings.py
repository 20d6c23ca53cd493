"""A judge's settings: the keyword arguments of its source, checked once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from worker.rewards.judge.prompt import DEFAULT_TEMPLATE

_NUMBERS = ("max_tokens", "temperature", "timeout_s", "longest_chars", "lowest", "highest")
_TEXTS = ("model", "template", "score_key", "limit", "api_key_env", "transcript")


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Where the judge is and how it is asked.

    `endpoints` are base URLs, to which `/chat/completions` is added; `body` is laid over the
    request, as JSON text so that the settings can be hashed.
    """

    endpoints: tuple[str, ...] = field(repr=False)
    model: str
    template: str = DEFAULT_TEMPLATE
    max_tokens: int = 512
    temperature: float = 0.0
    timeout_s: float = 120.0
    longest_chars: int = 60_000
    lowest: float = 0.0
    highest: float = 1.0
    score_key: str = "score"
    limit: str | None = None
    api_key_env: str | None = None
    transcript: str | None = None
    body: str = field(default="{}", repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError that names the field and the value."""
        for name in _NUMBERS:
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, int | float):
                raise ValueError(f"{name}: must be a number, got {value!r}")
        for name in _TEXTS:
            if not isinstance(value := getattr(self, name), str | None):
                raise ValueError(f"{name}: must be text, got {value!r}")
        if not self.endpoints:
            raise ValueError("endpoints: give at least one base URL (or base_url)")
        for url in self.endpoints:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                # Never the whole value: a malformed URL may hold credentials.
                raise ValueError(f"endpoints: {url[:12]!r}… is no http or https URL")
            if parts.username or parts.password:
                raise ValueError("endpoints: a URL with credentials ends in logs: use api_key_env")
        if not self.model:
            raise ValueError("model: is empty")
        if "{response}" not in self.template:
            raise ValueError("template: does not contain {response}")
        for name in ("max_tokens", "timeout_s", "longest_chars"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: must be above 0, got {getattr(self, name)!r}")
        if not self.lowest < self.highest:
            raise ValueError(f"lowest: {self.lowest!r} is not below highest {self.highest!r}")

    def extra_body(self) -> dict[str, Any]:
        """Return what is laid over each request, such as `response_format`."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    def api_key(self) -> str | None:
        """Return the key from the environment, None if none is asked for; never logged.

        Raises ValueError that names the variable, not its value.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise ValueError(f"api_key_env: {self.api_key_env} is not set in the environment")
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"api_key_env: {self.api_key_env} holds characters no header may hold")
        return key


def settings_of(
    *,
    endpoints: str | Sequence[str] | None = None,
    base_url: str | None = None,
    model: str = "",
    extra_body: Mapping[str, Any] | None = None,
    **rest: Any,
) -> JudgeSettings:
    """Return checked settings; raises ValueError for nonsense, TypeError for an unknown name."""
    if endpoints is not None and base_url is not None:
        raise ValueError("endpoints and base_url: give one of them")
    given = endpoints if endpoints is not None else (base_url or ())
    urls = (given,) if isinstance(given, str) else tuple(given)
    known = {name: value for name, value in rest.items() if value is not None}
    return JudgeSettings(
        endpoints=tuple(str(url).rstrip("/") for url in urls),
        model=model,
        body=json.dumps(dict(extra_body or {}), sort_keys=True),
        **known,
    )
