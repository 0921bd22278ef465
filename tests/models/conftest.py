"""The tiny models are shared with the tests of decoding, and the architectures among the tests here."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "generate"), str(HERE.parent.parent)]
