"""What chaos tests of scoring share with the others."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "scoring"))
