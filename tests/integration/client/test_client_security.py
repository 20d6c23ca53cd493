"""The access rules of docs/security.md, as they stand there, on a real server; and TLS."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from client_consumer import Consumer, rows, until
from client_workers import Workers

from queue_client import Output, PoolUnavailable, RewardClient, Trajectory
from queue_client.protocol import PING_SOURCE
from worker.ops.commands import doctor, info
from worker.ops.embedded import EmbeddedServer, find_server

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"


class Guarded:
    """A server with the documented users; `url(role)` is what that role connects to."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        with redis.Redis.from_url(server.url) as default:
            default.acl_setuser(
                "admin", enabled=True, passwords=["+x"], keys="*", categories=["+@all"]
            )
            default.execute_command("ACL", "SETUSER", "admin", "&*")
        self.admin = redis.Redis.from_url(self.url("admin", "x"), decode_responses=True)
        found = re.search(r"```acl\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
        assert found is not None
        for line in found[1].strip().splitlines():
            word, *rule = line.split()
            assert word == "user"
            self.admin.execute_command("ACL", "SETUSER", *rule)

    def url(self, role: str, password: str | None = None) -> str:
        password = password or f"{role.upper()}_SECRET"
        return self._server.url.replace("redis://", f"redis://{role}:{password}@")

    def denied(self) -> list[tuple[str, str, str]]:
        """What was refused to whom."""
        log = self.admin.acl_log()
        return [(entry["username"], entry["reason"], entry["object"]) for entry in log]


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with EmbeddedServer(binary=find_server(prefer_embedded=True)) as server:
        found = Guarded(server)
        yield found
        found.admin.close()


def test_each_role_does_its_work_with_the_documented_rights(guarded: Guarded, tmp_path: Path):
    ping = Trajectory(outputs=[Output(text="x")], data_source=PING_SOURCE)
    with Workers(guarded.url("worker"), tmp_path) as workers:
        workers.start()
        with RewardClient(guarded.url("producer")) as client:
            assert client.score([ping], timeout_s=60)[0].ok
            held = client.submit(rows(3), queue="nobody")
            until(lambda: guarded.admin.llen("rq:queue:nobody"))
            client._tie.get().sender._listeners._look("nobody", 3, 0.0)
            for job in client._tie.get().flight.jobs():
                job.checked_at = job.news_at = 0.0  # have it looked up
            until(lambda: all(job.checked_at for job in client._tie.get().flight.jobs()))
            client.cancel(held)
            until(lambda: not guarded.admin.llen("rq:queue:nobody"))
        assert CliRunner().invoke(info.command, ["--redis", guarded.url("viewer")]).exit_code == 0
        done = CliRunner().invoke(
            doctor.command, ["--redis", guarded.url("operator"), "--round-trip", "--json"]
        )
        assert done.exit_code == 0, done.output
    assert guarded.denied() == []


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("producer", ["FLUSHALL"]),
        ("producer", ["CONFIG", "GET", "requirepass"]),
        ("producer", ["KEYS", "*"]),
        ("producer", ["SET", "rewardpool:limit:{judge}:state", "x"]),
        ("producer", ["GET", "rewardpool:limit:{judge}:state"]),
        ("producer", ["SET", "rq:suspended", "1"]),
        ("producer", ["SADD", "rq:workers:rewards", "x"]),
        ("producer", ["HSET", "rq:worker:x", "state", "x"]),
        ("producer", ["SET", "rewardpool:worker:x", "x"]),
        ("producer", ["PUBLISH", "rq:pubsub:x", "x"]),
        ("producer", ["EVAL", "return 1", "0"]),
        ("worker", ["FLUSHALL"]),
        ("worker", ["CONFIG", "SET", "dir", "/"]),
        ("worker", ["ACL", "LIST"]),
        ("worker", ["SET", "somebody:else", "x"]),
        ("viewer", ["SET", "rq:suspended", "1"]),
        ("viewer", ["DEL", "rq:queues"]),
        ("viewer", ["EVAL", "return 1", "0"]),
        ("operator", ["FLUSHALL"]),
        ("operator", ["CONFIG", "GET", "*"]),
    ],
)
def test_no_role_does_more(guarded: Guarded, role: str, command: list[str]):
    with (
        redis.Redis.from_url(guarded.url(role)) as connection,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        connection.execute_command(*command)


def test_nobody_connects_without_a_password(guarded: Guarded):
    open_url = guarded._server.url
    for url in (open_url, guarded.url("producer", "wrong")):
        with pytest.raises(PoolUnavailable) as caught:
            RewardClient(url).score(rows(1))
        assert "wrong" not in str(caught.value)


def test_a_client_without_a_right_says_which(guarded: Guarded):
    guarded.admin.execute_command("ACL", "SETUSER", "producer", "-evalsha")
    with (
        RewardClient(guarded.url("producer")) as client,
        pytest.raises(PoolUnavailable, match="evalsha"),
    ):
        client.score(rows(1), timeout_s=30)


@pytest.fixture
def tls_url(tmp_path: Path) -> Iterator[str]:
    """A server that speaks TLS alone, with a certificate made on the spot."""
    openssl, binary = shutil.which("openssl"), shutil.which("redis-server")
    if openssl is None or binary is None:
        pytest.skip("needs openssl and a redis-server with TLS")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *files, *subject],
        check=True,
        capture_output=True,
    )

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tls = ["--tls-port", str(port), "--tls-cert-file", str(tmp_path / "cert.pem")]
    tls += ["--tls-key-file", str(tmp_path / "key.pem"), "--tls-auth-clients", "no"]
    with subprocess.Popen(
        [binary, "--port", "0", "--save", "", "--dir", str(tmp_path), *tls],
        stdout=subprocess.DEVNULL,
    ) as process:
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/cert.pem"
        try:
            with redis.Redis.from_url(url) as connection:
                until(lambda: process.poll() is not None or answers(connection))
            if process.poll() is not None:
                pytest.skip("this redis-server has no TLS")
            yield url
        finally:
            process.terminate()
            process.wait(15)


def answers(connection: redis.Redis) -> bool:
    try:
        return bool(connection.ping())
    except redis.ConnectionError:
        return False


def test_scoring_over_tls(tls_url: str):
    with Consumer(tls_url), RewardClient(tls_url) as client:
        assert [outcome.reward for outcome in client.score(rows(3), timeout_s=60)] == [0, 1, 2]


def test_a_certificate_of_nobody_is_refused(tls_url: str):
    with pytest.raises(PoolUnavailable, match=r"(?i)certificate"):
        RewardClient(tls_url.partition("?")[0]).score(rows(1))
