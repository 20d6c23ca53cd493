"""Container files are sound: linted, validated, and their install lines work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worker.settings import load_settings

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
FILES = sorted(DOCKER.glob("*.Dockerfile"))
PASSWORDS = {"REDIS_PASSWORD": "r" * 12, "DASHBOARD_PASSWORD": "d" * 12}


def program(name: str) -> str:
    """A tool beside this Python, or on the PATH; the test is skipped where it is absent."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return found


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


def composed() -> dict[str, object]:
    done = run(
        program("docker-compose"), "-f", "docker/compose.yaml", "config", "--format", "json",
        **PASSWORDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read: dict[str, object] = json.loads(done.stdout)
    return read


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_lint_finds_nothing(file: Path) -> None:
    done = run(program("hadolint"), str(file))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_images_are_pinned_slim_checked_and_not_root(file: Path) -> None:
    text = file.read_text("utf-8")
    for image in re.findall(r"^FROM (\S+)", text, re.M):
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", image), image
    user = re.findall(r"^USER (\S+)", text, re.M)[-1]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert re.search(r"^HEALTHCHECK ", text, re.M)
    assert "--constraint constraints.txt" in text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_everything_an_image_copies_is_there_and_not_ignored(file: Path) -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }  # fmt: skip
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", file.read_text("utf-8"), re.M):
        for name in line.split():
            assert (ROOT / name).exists(), name
            assert name in kept, name


def test_the_compose_file_is_valid_and_redis_never_evicts() -> None:
    services = composed()["services"]
    assert isinstance(services, dict)
    assert set(services) == {"redis", "worker", "scheduler", "dashboard", "metrics", "prometheus"}
    redis = " ".join(services["redis"]["command"])
    assert "--maxmemory-policy noeviction" in redis
    assert "--appendonly yes" in redis
    assert "--requirepass" in redis
    assert services["worker"]["deploy"]["replicas"] == 2
    for name, service in services.items():
        assert service.get("image", "").partition(":")[2] or "build" in service, name
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name


def test_the_compose_file_asks_for_its_passwords() -> None:
    done = run(
        program("docker-compose"), "-f", "docker/compose.yaml", "config", "-q",
        REDIS_PASSWORD="", DASHBOARD_PASSWORD="",
    )  # fmt: skip
    assert done.returncode != 0
    assert "docker/.env" in done.stderr


def test_no_password_is_written_into_a_file() -> None:
    for line in (DOCKER / "env.example").read_text("utf-8").splitlines():
        assert not re.match(r"\w*PASSWORD=.", line), line


def test_the_settings_file_of_the_containers_is_valid() -> None:
    load_settings(DOCKER / "rewardpool.toml", environ={})


def test_the_modules_the_compose_file_starts_exist() -> None:
    text = (DOCKER / "compose.yaml").read_text("utf-8") + "".join(
        file.read_text("utf-8") for file in FILES
    )
    for module in set(re.findall(r"-m\"?, \"?(worker[\w.]+)", text)):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module


def test_alert_rules_are_valid_and_fire_when_they_should() -> None:
    promtool = program("promtool")
    checked = run(promtool, "check", "config", "docker/prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run(promtool, "test", "rules", "tests/unit/docker/alerts_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
