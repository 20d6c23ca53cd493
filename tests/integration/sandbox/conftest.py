"""Runners and servers for the sandbox's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sandbox_server import SandboxServer, serving

from worker.sandbox.backends import close_backends
from worker.sandbox.code_reward import compute_score
from worker.sandbox.errors import NoIsolation
from worker.sandbox.local import LocalRunner


@pytest.fixture(scope="session")
def runner() -> LocalRunner:
    """The local runner as a user gets it; tests are skipped where nothing walls programs off."""
    try:
        return LocalRunner(max_running=4)
    except NoIsolation as error:
        pytest.skip(str(error))


@pytest.fixture
def sandbox(runner: LocalRunner) -> Iterator[SandboxServer]:
    """A Sandbox Fusion server on loopback that really runs programs."""
    with serving(runner) as server:
        yield server


@pytest.fixture
def stub() -> Iterator[SandboxServer]:
    """A server that gives scripted answers and runs nothing."""
    with serving() as server:
        yield server


@pytest.fixture
async def backends() -> AsyncIterator[None]:
    """Closes what reward functions of this loop have opened."""
    yield
    await close_backends()


class Score:
    """The code reward on one backend."""

    def __init__(self, url: str | None) -> None:
        self.url = url

    async def __call__(self, code: str, tests: Any, **options: Any) -> dict[str, Any]:
        """Score a program, given with or without its fence."""
        response = (
            code if "```" in code or options.pop("bare", False) else f"```python\n{code}\n```"
        )
        return await compute_score("taco", response, tests, sandbox_fusion_url=self.url, **options)


@pytest.fixture(params=["local", "server"])
async def score(
    request: pytest.FixtureRequest, runner: LocalRunner, sandbox: SandboxServer, backends: None
) -> Score:
    """The code reward, once on this machine and once through a server."""
    return Score(sandbox.url if request.param == "server" else None)
