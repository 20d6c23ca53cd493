"""Runners and servers for the sandbox's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from sandbox_server import SandboxServer, serving

from worker.sandbox.backends import close_backends
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
