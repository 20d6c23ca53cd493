"""The local runner: what a program may do, what it may not, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from worker.sandbox.errors import BadTests, NoIsolation, UnsupportedLanguage
from worker.sandbox.local import Bounds, LocalRunner, walls
from worker.sandbox.local.recipes import default_python, installed
from worker.sandbox.local.walls import Wall, find_wall, trial
from worker.sandbox.program import Program, RunReport
from worker.sandbox.verdict import judge

BOUNDS = Bounds()
GIB = 1 << 30


@pytest.fixture(scope="module", params=["bubblewrap", "namespaces"])
def walled(request: pytest.FixtureRequest) -> LocalRunner:
    """A runner behind each wall that this machine has."""
    wall = Wall(request.param, default_python(), BOUNDS)
    fault = trial(wall)
    if fault is not None:
        pytest.skip(f"{request.param}: {fault}")
    return LocalRunner(wall=wall, max_running=4)


@pytest.fixture(autouse=True)
def _no_program_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs run under user ids of their own when we are root; none of ours may be left."""
    place = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = walls.FIRST_UID + 500 * (place % 18)  # tests run side by side
    monkeypatch.setattr(walls, "FIRST_UID", first)
    monkeypatch.setattr(walls, "UIDS", 500)
    yield
    if os.getuid() != 0:
        return
    owned = range(first, first + 500)
    deadline = time.monotonic() + 5
    while left := [p for p in psutil.process_iter(["uids"]) if _uid(p) in owned]:
        assert time.monotonic() < deadline, f"programs left: {left}"
        time.sleep(0.05)


def _uid(process: psutil.Process) -> int:
    return process.info["uids"].real if process.info["uids"] else -1


def run(runner: LocalRunner, code: str, **options: object) -> RunReport:
    return runner.run_sync(Program(code, **options))  # type: ignore[arg-type]


def status_of(report: RunReport) -> str:
    return judge(report).status


def test_a_program_reads_its_input_and_prints(walled: LocalRunner) -> None:
    report = run(
        walled, "print(input()[::-1]); import sys; print('e', file=sys.stderr)", stdin="ab"
    )
    assert report.status == "Success"
    assert report.run_result is not None
    assert (report.run_result.stdout, report.run_result.stderr) == ("ba\n", "e\n")
    assert report.run_result.stdout_bytes == 3


@pytest.mark.parametrize(
    ("code", "return_code", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("import os; os.kill(os.getpid(), 11)", 139, ""),
        ("print(", 1, "SyntaxError"),
    ],
)
def test_a_failing_program_says_how(
    walled: LocalRunner, code: str, return_code: int, said: str
) -> None:
    report = run(walled, code)
    assert report.status == "Failed"
    assert report.run_result is not None
    assert report.run_result.return_code == return_code
    assert said in report.run_result.stderr


def test_an_endless_loop_is_out_of_time_and_keeps_what_it_printed(walled: LocalRunner) -> None:
    report = run(walled, "print('x', flush=True)\nwhile True: pass", run_timeout_s=1.0)
    assert status_of(report) == "timeout"
    assert report.run_result is not None
    assert (report.run_result.stdout, report.run_result.return_code) == ("x\n", None)


def test_a_fork_bomb_is_contained(walled: LocalRunner) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    report = run(walled, bomb, run_timeout_s=1.0)
    assert status_of(report) in {"timeout", "runtime_error"}
    plain = run(walled, "import os\nwhile True: os.fork()", run_timeout_s=5.0)
    assert plain.run_result is not None
    assert "Resource temporarily unavailable" in plain.run_result.stderr
    assert run(walled, "print(1)").status == "Success"


def test_four_gigabytes_are_refused(walled: LocalRunner) -> None:
    report = run(walled, "x = bytearray(4 << 30)")
    assert status_of(report) == "runtime_error"
    assert report.run_result is not None
    assert "MemoryError" in report.run_result.stderr


def test_memory_taken_by_many_processes_counts_together(walled: LocalRunner) -> None:
    code = (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        x = b'1' * (60 << 20)\n        time.sleep(60)\ntime.sleep(60)"
    )
    report = run(walled, code, memory_limit_mb=256, run_timeout_s=30.0)
    assert report.run_result is not None
    assert "more memory than its limit" in report.run_result.stderr
    assert status_of(report) == "runtime_error"


def test_two_gigabytes_of_output_are_stopped_and_named(walled: LocalRunner) -> None:
    code = "import sys\nfor _ in range(2 << 15): sys.stdout.write('x' * 32768)"
    began = time.monotonic()
    report = run(walled, code, run_timeout_s=60.0)
    assert status_of(report) == "output_flood"
    assert report.run_result is not None
    assert BOUNDS.output_mb << 20 <= report.run_result.stdout_bytes < GIB
    assert len(report.run_result.stdout) == BOUNDS.output_mb << 20
    assert time.monotonic() - began < 50


def test_output_below_the_bound_arrives_whole(walled: LocalRunner) -> None:
    report = run(walled, "print('x' * 400_000)")
    assert report.run_result is not None
    assert report.run_result.stdout == "x" * 400_000 + "\n"


@pytest.mark.parametrize(
    "path", ["/etc/owned", "/usr/owned", "/owned", "/proc/sys/kernel/hostname", "/box/main.py"]
)
def test_nothing_outside_the_folder_can_be_written(walled: LocalRunner, path: str) -> None:
    report = run(walled, f"open({path!r}, 'w').write('x')")
    assert status_of(report) == "runtime_error"
    assert not Path("/owned").exists()


def test_its_own_folder_can_be_written(walled: LocalRunner) -> None:
    code = "open('a', 'w').write('1'); open('/tmp/b', 'w').write('2'); print(open('a').read())"
    assert run(walled, code).status == "Success"


def test_a_large_file_is_refused(walled: LocalRunner) -> None:
    code = "f = open('a', 'wb')\nfor _ in range(200): f.write(b'1' * (1 << 20))"
    report = run(walled, code)
    assert report.run_result is not None
    assert "File too large" in report.run_result.stderr


def test_the_users_files_and_environment_are_out_of_sight(
    walled: LocalRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    monkeypatch.setenv("API_TOKEN", "s3cret")
    code = (
        "import os\n"
        f"print(os.path.exists({str(tmp_path)!r}), os.path.exists('/etc/passwd'))\n"
        "print([k for k in os.environ if 'TOKEN' in k], os.getuid() == 0)\n"
        "print(len([p for p in os.listdir('/proc') if p.isdigit()]) < 6)"
    )
    report = run(walled, code)
    assert report.run_result is not None
    assert report.run_result.stdout == "False False\n[] False\nTrue\n"


def test_there_is_no_network(walled: LocalRunner) -> None:
    async def main() -> RunReport:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=3)"
        async with server:
            return await walled.run(Program(code))

    report = asyncio.run(main())
    assert status_of(report) == "runtime_error"
    assert report.run_result is not None
    assert "Error" in report.run_result.stderr


def test_what_it_leaves_running_ends_with_it(walled: LocalRunner) -> None:
    code = "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(600)\nprint('done')"
    began = time.monotonic()
    report = run(walled, code)
    assert report.status == "Success"
    assert time.monotonic() - began < 9


def test_its_init_cannot_be_killed_from_inside(walled: LocalRunner) -> None:
    code = "import os\ntry: os.kill(1, 9)\nexcept OSError: pass\nprint('here')"
    report = run(walled, code)
    assert report.run_result is not None
    assert report.run_result.stdout == "here\n"


async def test_a_cancelled_run_leaves_nothing(walled: LocalRunner, tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    task = asyncio.create_task(walled.run(Program("while True: pass", run_timeout_s=60.0)))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_programs_do_not_disturb_each_other(walled: LocalRunner) -> None:
    programs = [Program(f"print({n})") for n in range(12)]
    programs.insert(5, Program("import os\nwhile True: os.fork()", run_timeout_s=1.0))
    reports = await asyncio.gather(*map(walled.run, programs))
    del reports[5]
    assert [r.run_result and r.run_result.stdout for r in reports] == [f"{n}\n" for n in range(12)]


def test_a_program_may_use_several_processes(walled: LocalRunner) -> None:
    code = (
        "import multiprocessing\ndef double(x): return 2 * x\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(double, [3]))"
    )
    report = run(walled, code)
    assert report.run_result is not None
    assert report.run_result.stdout == "[6]\n", report.run_result.stderr


def test_files_go_in_and_come_back(walled: LocalRunner) -> None:
    program = Program(
        "open('out', 'w').write(open('in').read() * 2); import os; os.symlink('/etc/passwd', 'ln')",
        files={"in": b"ab"},
        fetch_files=["out", "missing", "ln", "../x"],
    )
    assert dict(walled.run_sync(program).files) == {"out": b"abab"}


@pytest.mark.parametrize("path", ["/abs", "../up", ""])
def test_a_file_outside_the_folder_is_refused(walled: LocalRunner, path: str) -> None:
    with pytest.raises(BadTests, match="files"):
        walled.run_sync(Program("", files={path: b""}))


@pytest.mark.skipif("cpp" not in installed(), reason="g++ is not installed")
def test_compiled_programs_compile_and_run(walled: LocalRunner) -> None:
    code = "#include <iostream>\nint main(){int a;std::cin>>a;std::cout<<a*2;}"
    report = run(walled, code, language="cpp", stdin="21", compile_timeout_s=60.0)
    assert report.status == "Success", report
    assert report.run_result is not None
    assert report.run_result.stdout == "42"
    broken = run(walled, "int main(){", language="cpp", compile_timeout_s=60.0)
    assert (status_of(broken), broken.run_result) == ("compile_error", None)


def test_other_languages_run_where_they_are_installed(walled: LocalRunner) -> None:
    assert status_of(run(walled, "read x; echo $x; exit 2", language="bash", stdin="1\n")) == (
        "runtime_error"
    )
    with pytest.raises(UnsupportedLanguage, match="cobol"):
        run(walled, "", language="cobol")


def test_no_folder_is_left(
    walled: LocalRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(walled, "import os\nos.mkdir('d'); open('d/f', 'w'); os.chmod('d', 0)", fetch_files=["d"])
    assert not list(tmp_path.iterdir())


def test_folders_that_a_killed_worker_left_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: LocalRunner
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, age_s in (("rewardpool-box-old", 7200), ("rewardpool-box-new", 10), ("other", 7200)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    LocalRunner(wall=runner.wall)
    assert sorted(os.listdir(tmp_path)) == ["other", "rewardpool-box-new"]


def test_without_walls_it_refuses_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(wall: Wall) -> str | None:
        return "not here" if wall.isolates else trial(wall)

    monkeypatch.setattr("worker.sandbox.local.walls.trial", fails)
    find_wall.cache_clear()
    try:
        with pytest.raises(NoIsolation, match="allow_unisolated"):
            LocalRunner()
        try:
            bare = LocalRunner(allow_unisolated=True)
        except NoIsolation as error:
            pytest.skip(f"no interpreter for an unprivileged user: {error}")
        assert "NO SECURITY BOUNDARY" in caplog.text
        _bare_runs(bare)
    finally:
        find_wall.cache_clear()


def _bare_runs(bare: LocalRunner) -> None:
    """Without walls the limits and the tidying up still hold."""
    assert run(bare, "print(1)").status == "Success"
    assert status_of(run(bare, "while True: pass", run_timeout_s=1.0)) == "timeout"
    assert status_of(run(bare, "x = bytearray(4 << 30)")) == "runtime_error"
    leaves = "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(600)\nprint('done')"
    assert run(bare, leaves).status == "Success"
    loops = "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass"
    assert status_of(run(bare, loops, run_timeout_s=1.0)) == "timeout"


def test_links_of_the_program_lead_nowhere(walled: LocalRunner, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    code = f"import os\nos.symlink({str(tmp_path)!r}, 'd')\nos.symlink('d/secret', 'f')"
    names = ["d/secret", "f", "../secret", f"{tmp_path}/secret"]
    assert not walled.run_sync(Program(code, fetch_files=names)).files


def test_a_virtual_environment_may_be_given(runner: LocalRunner) -> None:
    import sys

    if sys.prefix == sys.base_prefix:
        pytest.skip("not in a virtual environment")
    given = LocalRunner(python=f"{sys.prefix}/bin/python")
    report = run(given, "import msgpack, sys; print(sys.prefix)")
    assert report.run_result is not None
    assert report.run_result.stdout == f"{sys.prefix}\n", report.run_result.stderr
