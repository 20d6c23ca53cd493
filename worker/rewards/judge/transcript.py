"""An opt-in file of what judges were asked and said: prompts and responses, so keep it private.

JSON Lines, created readable by its owner only. Each line is one write to a file opened for
appending, so several worker processes may share it.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any


def append(path: str, record: dict[str, Any]) -> None:
    """Append one record with the time of day, seconds since 1970. Raises OSError."""
    line = json.dumps({"time": round(time.time(), 3), **record}, default=str) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, line.encode("ascii"))
    finally:
        os.close(handle)
