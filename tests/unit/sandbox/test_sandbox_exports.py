"""What `worker.sandbox` hands on."""

from __future__ import annotations

import subprocess
import sys

import pytest

import worker.sandbox as sandbox


def test_every_name_is_there_and_an_unknown_one_is_not() -> None:
    for name in [*sandbox.__all__, "_process_single_case"]:
        assert getattr(sandbox, name).__name__ == name
    with pytest.raises(AttributeError, match="Runner"):
        _ = sandbox.Runner  # type: ignore[attr-defined]


def test_importing_it_imports_no_client() -> None:
    code = (
        "import worker.sandbox, sys; print([m for m in ('httpx', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
