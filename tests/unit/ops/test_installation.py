"""Another distribution that overwrote one of our packages is named at start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.ops.installation import PACKAGES, check_installation


def test_an_installation_of_ours_passes() -> None:
    check_installation()


@pytest.mark.parametrize("name", PACKAGES[1:])
def test_a_package_of_another_distribution_is_named_with_its_file(
    name: str, tmp_path: Path
) -> None:
    """The old `limiter` on the package index installs exactly such a folder over ours."""
    other = tmp_path / name
    other.mkdir()
    (other / "__init__.py").write_text("def rate_limiter(): ...\n")

    # In the folder of the other one, `-m` puts it first on the path, as an overwritten install is.
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", "from worker.ops.cli import main; main(['--help'])"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2, done.stderr
    assert f"package {name!r} at {other / '__init__.py'} is not rewardpool's" in done.stderr
    assert "Traceback" not in done.stderr
