"""The scripts' headers are their contract, and the key table is the code's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from limiter import scripts
from limiter.keys import PARTS, Keys

ROOT = Path(__file__).parents[3]
HEADER = re.compile(r"^-- (KEYS|ARGV)\[(\d+)\] +(\w+)", re.MULTILINE)
INCLUDE = re.compile(r"^-- include (.+)$", re.MULTILINE)


def bound(text: str) -> dict[tuple[str, int], str]:
    """Which local is bound to which input, from the `local a, b = KEYS[1], ARGV[2] + 0` lines."""
    found = {}
    for names, values in re.findall(r"^local ([\w, ]+) = (.+)$", text, re.MULTILINE):
        pairs = zip(names.split(", "), values.split(", "), strict=False)
        for name, value in pairs:
            match = re.match(r"(KEYS|ARGV)\[(\d+)\]", value)
            if match:
                found.setdefault((match[1], int(match[2])), name)
    return found


@pytest.mark.parametrize("verb", scripts.VERBS)
def test_the_header_names_every_input_as_the_body_binds_it(verb: str) -> None:
    text = scripts.source(f"limit_{verb}")
    promised = {(kind, int(number)): name for kind, number, name in HEADER.findall(text)}
    assert promised == bound(text)
    assert re.match(r"-- [A-Z].*[.,]\n", text), "a sentence says what it is for"
    assert "-- Returns " in text


@pytest.mark.parametrize("verb", scripts.VERBS)
def test_inputs_are_only_used_by_their_names(verb: str) -> None:
    whole = scripts.assemble(verb)
    numbers = {int(n) for n in re.findall(r"KEYS\[(\d+)\]", whole)}
    assert numbers == set(range(1, len(PARTS) + 1))
    body = scripts.source(f"limit_{verb}")
    arguments = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", body)}
    promised = {int(n) for kind, n, _ in HEADER.findall(body) if kind == "ARGV"}
    assert arguments == promised


def test_the_clock_is_read_in_one_line() -> None:
    for verb in scripts.VERBS:
        assert scripts.assemble(verb).count("'TIME'") == 1


def test_what_the_test_double_lacks_is_not_used() -> None:
    for verb in scripts.VERBS:
        text = scripts.assemble(verb)
        for name in ("cmsgpack", "struct.", "bit.", "sha1hex", "#!lua", "math.random", "tostring("):
            assert name not in text, f"{verb} uses {name}"


def test_every_fragment_exists_and_is_used() -> None:
    folder = ROOT / "lua"
    used = {
        name
        for verb in scripts.VERBS
        for line in INCLUDE.findall(scripts.source(f"limit_{verb}"))
        for name in line.split()
    }
    assert used == {path.stem for path in folder.glob("_*.lua")}
    assert {path.stem for path in folder.glob("limit_*.lua")} == {
        f"limit_{verb}" for verb in scripts.VERBS
    }


@pytest.mark.parametrize("verb", scripts.VERBS)
def test_the_whole_text_passes_luacheck(verb: str, tmp_path: Path) -> None:
    if shutil.which("luacheck") is None:
        pytest.skip("luacheck is not installed")
    (tmp_path / "verb.lua").write_text(scripts.assemble(verb))
    options = ["--no-config", "--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV"]
    options += ["--no-unused", "--no-redefined", "--no-max-line-length", "-q"]
    run = ["luacheck", str(tmp_path / "verb.lua"), *options]
    assert subprocess.run(run, capture_output=True, text=True).returncode == 0


def test_the_key_table_in_the_docs_is_the_codes() -> None:
    text = (ROOT / "docs" / "redis-keys.md").read_text(encoding="utf-8")
    section = text.split("## Limiter")[1].split("\n## ")[0]
    listed = set(re.findall(r"^\| `(rewardpool:limit:[^`]+)`", section, re.MULTILINE))
    keys = Keys.of("NAME")
    assert listed == {*keys.all, keys.mail("OWNER")}


def test_the_event_table_in_the_docs_names_every_script() -> None:
    text = (ROOT / "docs" / "limiter.md").read_text(encoding="utf-8")
    events = text.split("## What happens")[1].split("\n## ")[0]
    named = set(re.findall(r"\| `(\w+)` \|", events))
    assert named == set(scripts.VERBS)
    assert text.rstrip().split("\n## ")[-1].startswith("Known sharp edges")


def test_every_test_named_in_the_reports_exists() -> None:
    text = (ROOT / "docs" / "limiter-reports.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    files = (ROOT / "tests").glob("*/limiter/test_*.py")
    written = set(
        re.findall(r"def (test_\w+)", "\n".join(path.read_text(encoding="utf-8") for path in files))
    )
    assert len(named) > 25
    assert named <= written
