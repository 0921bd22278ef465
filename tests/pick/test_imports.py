"""The library stands alone: importing it brings in no dashboard, and starts nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = ("gradio", "plotly", "spaces")

IMPORT_ALL = f"""
import importlib, pkgutil, sys, threading
import hsd
names = [module.name for module in pkgutil.walk_packages(hsd.__path__, "hsd.") if not module.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names), *(name for name in {FORBIDDEN} if name in sys.modules), sep="\\n")
"""


def test_importing_every_module_of_the_library_imports_no_dashboard():
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    count, *found = result.stdout.split()
    assert int(count) > 20 and found == []


def test_no_source_file_of_the_library_names_a_dashboard_import():
    for path in (ROOT / "hsd").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]) and len(words) > 1:
                assert words[1].split(".")[0].rstrip(",") not in FORBIDDEN, f"{path}: {line}"
