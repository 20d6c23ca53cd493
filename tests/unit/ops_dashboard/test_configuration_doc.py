"""docs/configuration.md says what the settings classes say."""

from __future__ import annotations

from pathlib import Path

from worker.ops.configuration_doc import TARGET, written

ROOT = Path(__file__).parents[3]


def test_the_page_is_current() -> None:
    told = "not current: run `python -m worker.ops.configuration_doc` and commit the page"
    assert (ROOT / TARGET).read_text(encoding="utf-8") == written(), told


def test_every_key_has_its_variable() -> None:
    page = written()
    for variable in (
        "REWARDPOOL_REDIS__URL",
        "REWARDPOOL_LIMITS__NAME__RPM",
        "REWARDPOOL_REWARD__TIMEOUT_S",
        "REWARDPOOL_WORKER__CONCURRENCY",
    ):
        assert variable in page
