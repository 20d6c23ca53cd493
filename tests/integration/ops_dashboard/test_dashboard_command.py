"""`rewardpool dashboard` as a process, and under a path of its own."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from dashboard_seeds import store_job

from worker.ops.commands.dashboard import command
from worker.ops.dashboard.app import create_app

TIMEOUT_S = 60


def test_the_command_serves_behind_a_password_until_told_to_stop(
    redis_url: str, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.ops.cli", "dashboard", "--port", "0",
         "--user", "me", "--password-file", str(password)],
        env=os.environ | {"REWARDPOOL_REDIS__URL": redis_url}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("dashboard on http://127.0.0.1:")
        address = said.split()[-1]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address, timeout=TIMEOUT_S)
        login = base64.b64encode(b"me:secret").decode()
        request = urllib.request.Request(address, headers={"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as page:
            assert b"Queues" in page.read()
        with urllib.request.urlopen(f"{address}healthz", timeout=TIMEOUT_S) as page:
            assert page.read() == b"ok\n"
    finally:
        process.terminate()
        code = process.wait(TIMEOUT_S)
        process.stderr.close()
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bind", "0.0.0.0"], "--user"),
        (["--bind", "10.1.2.3", "--user", "me"], "REWARDPOOL_DASHBOARD_PASSWORD"),
        (["--read-only", "--allow-delete"], "exclude each other"),
        (["--url-prefix", "pool/"], "--url-prefix"),
        (["--password-file", __file__], "--user"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: list[str], said: str) -> None:
    done = CliRunner(env={"REWARDPOOL_DASHBOARD_PASSWORD": None}).invoke(command, arguments)
    assert done.exit_code == 2
    assert said in done.output


def test_a_taken_port_is_named(redis_url: str) -> None:
    port = redis_url.rpartition(":")[2].split("/")[0]
    done = CliRunner().invoke(command, ["--redis", redis_url, "--port", port])
    assert done.exit_code == 1
    assert f"127.0.0.1:{port}" in done.output


def test_every_link_of_a_page_keeps_the_prefix(redis_url: str, connection: redis.Redis) -> None:
    store_job(connection, "one", exc="boom")
    app = create_app(redis_url, url_prefix="/pool")
    client = app.test_client()
    for path in ("/pool/", "/pool/0/view/jobs/rewards/failed/8/asc/1", "/pool/0/view/limits"):
        page = client.get(path, base_url="http://localhost")
        assert page.status_code == 200
        links = re.findall(r'(?:href|src)="(/[^"]*)"', page.text)
        assert links
        for link in links:
            assert link.startswith("/pool/"), link
            found = client.get(link, base_url="http://localhost", follow_redirects=True)
            assert found.status_code in (200, 405), link
            found.close()
    assert client.get("/", base_url="http://localhost").headers["Location"].endswith("/pool/")
    data = client.get("/pool/0/data/queues.json", base_url="http://localhost").json
    assert data["queues"][0]["failed_url"].startswith("/pool/")
    app.extensions["rewardpool"].connection.close()
