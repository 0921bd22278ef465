"""The README's example in Python runs as it stands, here on a small model."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_of_the_library_runs(work, capsys):
    [example] = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    small = example.replace('"smollm2-135m", ["retrieval", "quantized:int4"]', f'"{work / "target"}", ["prompt-lookup", "early-exit:1"]')
    short = small.replace("load_default()", 'load_file(b"abc abc abc abc\\none two three\\n", "prompts.txt")').replace(
        "load_default", "load_file"
    )
    assert small != example and short != small
    exec(compile(short, "README.md", "exec"), {})
    first, text = capsys.readouterr().out.split("\n", 1)
    assert first.endswith("times as fast as the target alone") and text
