"""A built-in that is named in the settings and does not exist ends the start."""

from __future__ import annotations

import pytest

from worker.scoring.functions import load
from worker.settings import SettingsError


def test_a_misspelled_builtin_is_a_settings_error_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean 'gsm8k'"):
        load("builtin:gms8k")
