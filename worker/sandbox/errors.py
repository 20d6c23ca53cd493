"""What running a program can raise: faults of the sandbox or of its use, never of the program.

SandboxProblem
├── SandboxUnavailable      no answer after all retries: an outage is a failure, never a score of 0
├── SandboxRefused          the server refused the request (a 4xx): sending it again changes nothing
├── UnsupportedLanguage     nobody here runs programs in this language
├── NoIsolation             nothing here walls a program off, and nobody allowed running it bare
└── BadTests                test cases are malformed: says the field and the value

A program that fails, loops, floods or crashes is a report, not an exception.
"""

from __future__ import annotations

from collections.abc import Iterable


class SandboxProblem(Exception):
    """The root of the sandbox's errors; `retryable` says whether a later try may mend it."""

    retryable = False


class SandboxUnavailable(SandboxProblem, ConnectionError):
    """The sandbox gave no usable answer; `attempts` counts the calls made. Try again later."""

    retryable = True

    def __init__(self, message: str, *, attempts: int = 1, last_status: int | None = None) -> None:
        super().__init__(message)
        self.attempts, self.last_status = attempts, last_status


class SandboxRefused(SandboxProblem, ValueError):
    """The server answered `status` (4xx other than 408, 425, 429); mend the request."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the sandbox refused the request: HTTP {status}: {detail}")
        self.status, self.detail = status, detail


class UnsupportedLanguage(SandboxProblem, ValueError):
    """This language is not run here; `known` lists those that are."""

    def __init__(self, language: str, known: Iterable[str]) -> None:
        self.language, self.known = language, sorted(known)
        super().__init__(f"language: {language!r} is not one of {', '.join(self.known)}")


class NoIsolation(SandboxProblem, RuntimeError):
    """Install bubblewrap, allow user namespaces, or opt in with `allow_unisolated`."""


class BadTests(SandboxProblem, ValueError):
    """Test cases cannot be read; mend the named field."""
