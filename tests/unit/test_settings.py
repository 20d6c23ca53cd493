"""Settings are read once, checked, and refused with the field, the value and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.settings import SettingsError, load_settings


def write(folder: Path, text: str) -> Path:
    file = folder / "rewardpool.toml"
    file.write_text(text)
    return file


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    settings = load_settings(environ={})

    assert settings.redis.url == "redis://localhost:6379/0"
    assert settings.worker.concurrency == 256


def test_the_file_in_the_working_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[worker]\nconcurrency = 7\n")
    monkeypatch.chdir(tmp_path)

    assert load_settings(environ={}).worker.concurrency == 7


def test_the_environment_lies_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[worker]\nconcurrency = 7\n[limits.judge]\nrpm = 60\n")

    settings = load_settings(
        environ={
            "REWARDPOOL_CONFIG": str(file),
            "REWARDPOOL_WORKER__CONCURRENCY": "9",
            "REWARDPOOL_LIMITS__JUDGE__TPM": "90000",
            "REWARDPOOL_REWARD__SOURCES": '{"openai/gsm8k": {"function": "builtin:gsm8k"}}',
        }
    )

    assert settings.worker.concurrency == 9
    assert (settings.limits["judge"].rpm, settings.limits["judge"].tpm) == (60, 90_000)
    assert settings.reward.sources["openai/gsm8k"].function == "builtin:gsm8k"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[worker]\nconcurency = 7\n",
            "worker.concurency: unknown key, did you mean 'concurrency'?",
        ),
        ("[limits.judge]\nrmp = 7\n", "limits.judge.rmp: unknown key, did you mean 'rpm'?"),
        ('[reward.sources."a/b"]\nfuncton = "x"\n', "did you mean 'function'?"),
        ("[reword]\n", "reword: unknown key, did you mean 'reward'?"),
        ("[worker]\nconcurrency = 0\n", "(got 0)"),
        ('[worker]\nconcurrency = "many"\n', "(got 'many')"),
        ("[limits.judge]\nrpm = -1\n", "limits.judge.rpm: "),
        ("[worker\n", "rewardpool.toml: "),
    ],
)
def test_nonsense_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(write(tmp_path, text), environ={})

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_variable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SettingsError, match="did you mean 'concurrency'"):
        load_settings(environ={"REWARDPOOL_WORKER__CONCURENCY": "9"})


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        load_settings(tmp_path / "absent.toml", environ={})


def test_the_redis_url_and_its_password_stay_out_of_the_repr(tmp_path: Path) -> None:
    settings = load_settings(environ={"REWARDPOOL_REDIS__URL": "redis://:secret@host/0"})

    assert settings.redis.url == "redis://:secret@host/0"
    assert "secret" not in repr(settings)
