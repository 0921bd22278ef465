"""`python -m hsd.pick.fetch OWNER/NAME`: download what loading needs; run by `hub.fetch`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from hsd.pick.failures import explain
from hsd.pick.hub import SENTENCE_FOLLOWS

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_SMALL = (".json", ".txt", ".jinja", ".model")


def wanted_files(sizes: Mapping[str, int]) -> list[str]:
    """The files that transformers loads, of all files in a repository: no pickles, no second format, no subfolders.

    Empty when there are no safetensors weights on the main branch: transformers then looks for a converted copy itself.
    """
    weights = [name for name in sizes if _WEIGHTS.fullmatch(name)]
    return sorted([*weights, *(name for name in sizes if "/" not in name and name.endswith(_SMALL))]) if weights else []


def main(hub_id: str) -> int:
    from huggingface_hub import HfApi, snapshot_download

    try:
        found = HfApi().model_info(hub_id, files_metadata=True).siblings or []
        sizes = {file.rfilename: file.size or 0 for file in found}
        names = wanted_files(sizes)
        print(f"total {sum(sizes[name] for name in names)}", flush=True)
        if names:
            snapshot_download(hub_id, allow_patterns=names)
    except Exception as error:
        print(explain(hub_id, error), flush=True)
        return SENTENCE_FOLLOWS
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
