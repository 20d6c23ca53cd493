"""What is shipped: scripts in every kind of install, and a thin client that needs little."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # builds and installs on a busy machine

ROOT = Path(__file__).parents[3]
SCRIPTS = {f"lua/{script.name}" for script in (ROOT / "lua").glob("*.lua")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built from the tracked and new files alone."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    environment = tmp_path_factory.mktemp("build") / "venv"
    venv.create(environment, with_pip=True)
    run(environment / "bin/python", "-m", "pip", "install", "-q", "setuptools>=77", "wheel")
    for command in ("sdist", "bdist_wheel"):
        code = "import setuptools; setuptools.setup()"
        run(environment / "bin/python", "-c", code, command, "-d", out, cwd=source)
    return out


def run(*command: object, cwd: Path | None = None, **variables: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_and_sdist_hold_the_packages_and_every_script(built: Path) -> None:
    assert SCRIPTS
    (wheel,) = built.glob("rewardpool-*-py3-none-any.whl")
    (sdist,) = built.glob("rewardpool-*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}

    assert inside >= SCRIPTS
    assert packed >= SCRIPTS | {"LICENSE", "README.md"}
    tops = {name.partition("/")[0] for name in inside if ".dist-info" not in name}
    assert tops == {"worker", "limiter", "queue_client", "lua"}
    assert {"worker/py.typed", "limiter/py.typed", "queue_client/py.typed"} <= inside


@pytest.fixture(scope="module")
def thin(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python with the wheel and what it requires, no extra."""
    environment = tmp_path_factory.mktemp("thin") / "venv"
    venv.create(environment, with_pip=True)
    (wheel,) = built.glob("*.whl")
    constraints = ROOT / "constraints.txt"
    run(environment / "bin/python", "-m", "pip", "install", "-q", "-c", constraints, wheel)
    yield environment / "bin"
    shutil.rmtree(environment)


def test_a_trainer_needs_no_extra_for_client_and_limiter(thin: Path, tmp_path: Path) -> None:
    listed = run(thin / "python", "-m", "pip", "list", "--format", "freeze").lower()
    for heavy in ("torch", "transformers", "pydantic", "httpx", "rich", "flask"):
        assert f"\n{heavy}==" not in listed

    code = (
        "import importlib.resources as r, limiter, queue_client, queue_client.wire;"
        "limiter.Limiter; queue_client.RewardClient;"
        "print(len([f for f in r.files('lua').iterdir() if f.name.endswith('.lua')]))"
    )
    assert int(run(thin / "python", "-I", "-c", code, cwd=tmp_path)) == len(SCRIPTS)


def test_a_command_that_needs_an_extra_names_it(thin: Path, tmp_path: Path) -> None:
    assert "score a rollout file" in run(thin / "rewardpool", "--help", cwd=tmp_path)
    done = subprocess.run(
        [thin / "rewardpool", "score", os.devnull],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'rewardpool[worker]'" in done.stderr


def test_an_editable_install_finds_the_scripts() -> None:
    code = "import importlib.resources as r; print(r.files('lua'))"
    assert Path(run(sys.executable, "-c", code, cwd=Path("/")).strip()) == ROOT / "lua"
