"""The images' install lines, run in a clean environment on exactly the files they copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(600)  # two installs on a busy machine
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
HOME = "/opt/rewardpool"


def copied(file: Path, target: Path) -> None:
    """Put into `target` what the build stage copies."""
    for line in re.findall(r"^COPY (?!--from)(.+) (\S+)$", file.read_text("utf-8"), re.M):
        for name in line[0].split():
            source = ROOT / name
            if source.is_dir():
                kept = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target / name, dirs_exist_ok=True, ignore=kept)
            else:
                shutil.copy(source, target / name)


def install_line(file: Path) -> str:
    """The pip command of the build stage, its ARGs filled in."""
    text = file.read_text("utf-8")
    line = re.findall(rf"{HOME}/bin/pip (install .+)$", text, re.M)[0]
    for name, value in re.findall(r"^ARG (\w+)=(\S+)$", text, re.M):
        line = line.replace(f"${{{name}}}", value)
    assert "$" not in line
    return line


def installed(folder: Path) -> Path:
    """One environment in which the install lines of all images ran, one after the other."""
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    for file in FILES:
        source = folder / file.stem
        source.mkdir()
        copied(file, source)
        words = [word.strip('"') for word in install_line(file).split()]
        words.remove("--no-cache-dir")  # what is installed is the same
        done = subprocess.run(
            [environment / "bin/python", "-m", "pip", "-q", *words],
            cwd=source, capture_output=True, text=True, check=False,
            env=os.environ | {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    return environment


def run(environment: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if "REWARDPOOL" not in name}
    return subprocess.run(
        [environment / "bin" / command[0], *command[1:]],
        cwd=environment, env=kept | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_install_lines_of_the_images_bring_what_they_start(tmp_path: Path) -> None:
    """One test, so that the environment is made once whatever shares out the tests."""
    environment = installed(tmp_path)
    what_the_images_start_is_there(environment)
    health_checks_and_scheduler_say_what_is_wrong_in_one_line(environment)
    the_dashboard_brings_its_pages(environment)
    other_machines_are_let_in_with_a_password_only(environment)


def what_the_images_start_is_there(environment: Path) -> None:
    for command in ("worker", "dashboard", "metrics"):
        done = run(environment, "rewardpool", command, "--help")
        assert done.returncode == 0, done.stderr


def health_checks_and_scheduler_say_what_is_wrong_in_one_line(environment: Path) -> None:
    nowhere = {"REWARDPOOL_REDIS__URL": "redis://127.0.0.1:1/0"}
    worker = run(environment, "python", "-m", "worker.ops.health", **nowhere)
    assert (worker.returncode, worker.stderr) == (1, "Redis: ConnectionError\n")
    page = run(environment, "python", "-m", "worker.ops.health", "http://127.0.0.1:1/healthz")
    assert page.returncode == 1
    assert "refused" in page.stderr
    scheduler = run(environment, "python", "-m", "worker.ops.scheduler")
    assert scheduler.returncode == 2
    wrong = run(
        environment, "python", "-m", "worker.ops.scheduler", "q", REWARDPOOL_REDDIS__URL="x"
    )
    assert wrong.returncode == 2
    assert "redis" in wrong.stderr
    assert wrong.stderr.count("\n") == 1


def the_dashboard_brings_its_pages(environment: Path) -> None:
    script = (
        "from worker.ops.dashboard.app import create_app\n"
        "page = create_app('redis://127.0.0.1:1/0').test_client().get('/', "
        "base_url='http://localhost')\n"
        "assert page.status_code == 200 and b'Queues' in page.data, page.data\n"
    )
    done = run(environment, "python", "-c", script)
    assert done.returncode == 0, done.stderr


def other_machines_are_let_in_with_a_password_only(environment: Path) -> None:
    done = run(environment, "rewardpool", "dashboard", "--bind", "0.0.0.0")
    assert done.returncode == 2
    assert "--user" in done.stderr
    named = run(environment, "rewardpool", "dashboard", "--bind", "0.0.0.0", "--user", "operator")
    assert named.returncode == 2
    assert "REWARDPOOL_DASHBOARD_PASSWORD" in named.stderr
