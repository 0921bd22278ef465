"""The tiny models and tables are shared with the tests of decoding."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "generate"), str(HERE.parent.parent)]
