"""Docs and alert rules name the metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

from worker.ops.metric_names import ALL

ROOT = Path(__file__).parents[3]
SUFFIXES = re.compile(r"_(bucket|sum|count)$")


def test_the_documented_table_is_the_table_in_the_code() -> None:
    rows = [
        f"| `{one.exposed}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)}"
        f" | {one.says} |"
        for one in ALL
    ]
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith("| `")] == rows


def test_rules_and_docs_name_no_metric_that_is_not_there() -> None:
    known = {one.exposed for one in ALL}
    for name in ("docker/alerts.yml", "docs/metrics.md", "docs/operations.md"):
        for found in re.findall(r"\brewardpool_[a-z_]+", (ROOT / name).read_text("utf-8")):
            assert found in known or SUFFIXES.sub("", found) in known, f"{name}: {found}"


def test_names_follow_prometheus_conventions() -> None:
    for one in ALL:
        assert re.fullmatch(r"rewardpool_[a-z_]+", one.name)
        assert not one.name.endswith("_total")
        assert one.says == one.says.strip()
        assert one.says


def test_operations_say_what_to_do_about_every_alert() -> None:
    rules = re.findall(r"- alert: (\w+)", (ROOT / "docker/alerts.yml").read_text("utf-8"))
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    assert re.findall(r"^\| `(Rewardpool\w+)` \|", page, re.M) == rules
    tested = (ROOT / "tests/unit/docker/alerts_test.yml").read_text("utf-8")
    for rule in rules:
        assert f"alertname: {rule}" in tested, rule
