"""The README's quickstart runs as it stands, against a pool started by its own command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent
URL = "redis://localhost:6379/0"


def block_after(marker: str, language: str) -> str:
    found = re.search(re.escape(marker) + r".*?```" + language + r"\n(.*?)```", TEXT, re.DOTALL)
    assert found, marker
    return found.group(1)


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, language in (("my_rewards.py", "python"), ("rewardpool.toml", "toml")):
        (tmp_path / name).write_text(block_after(f"`{name}`:", language))
    return tmp_path


@pytest.mark.parametrize(
    "marker", ["rewardpool worker rewards", "REWARDPOOL_CONFIG=rewardpool.toml"]
)
def test_the_quickstart_prints_the_rewards(marker: str, folder: Path, redis_url: str) -> None:
    (command,) = [line for line in commands() if line.startswith(marker)]
    worker = subprocess.Popen(
        ["bash", "-c", "exec env " + command.replace(URL, redis_url)],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        with redis.Redis.from_url(redis_url) as client:
            deadline = time.monotonic() + 60
            while not client.scard("rq:workers:rewards"):
                assert worker.poll() is None, worker.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.1)
        code = block_after("Then, in the trainer:", "python").replace(URL, redis_url)
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "[1.0, 0.0] [True, True]\n", done.stderr
    finally:
        worker.terminate()
        _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0, errors


def test_every_command_of_the_readme_exists(tmp_path: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands():
        words = line.split()
        if words[0] == "make":
            assert words[1] in targets, line
        elif words[0] == "rewardpool":
            done = subprocess.run(
                [BIN / "rewardpool", words[1], "--help"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_every_page_that_the_readme_links_is_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / link).is_file(), link
