"""What one worker process gets through; `bench/_worker.py` describes and measures it.

Run `python bench/worker.py [--json] [--only no-op|rows|waiting|latency]… [--scale X]`.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A script's folder comes first on its path, and this file is named like our package.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

if __name__ == "__main__":
    runpy.run_path(str(HERE / "_worker.py"), run_name="__main__")
else:  # another benchmark meant the package
    del sys.modules[__name__]
    importlib.import_module(__name__)
