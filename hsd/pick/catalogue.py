"""Curated model families, with the figures that memory estimates need before anything is fetched."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hsd.pick import embedded
from hsd.pick.memory import Footprint


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Families that share a tokenizer; `sizes` are the token counts that `len(tokenizer)` gives for its members."""

    name: str
    sizes: tuple[int, ...]


SMOLLM2 = Vocabulary("SmolLM2", (49152,))
QWEN = Vocabulary("Qwen2.5 and Qwen3", (151665, 151669))  # Qwen3 adds four special tokens at the end
LLAMA3 = Vocabulary("Llama 3", (128256,))
LLAMA2 = Vocabulary("Llama 2", (32000,))
GEMMA3 = Vocabulary("Gemma 3", (262145,))
PYTHIA = Vocabulary("GPT-NeoX", (50277,))
OPT = Vocabulary("OPT", (50265,))


@dataclass(frozen=True, slots=True)
class Entry:
    name: str  # hub id, or the embedded default
    family: str
    vocabulary: Vocabulary
    parameters: int
    layers: int
    kv_heads: int
    head_dim: int
    max_context: int
    gated: bool = False  # its licence must be accepted on the hub first
    early_exits: tuple[int, ...] = ()  # layers after which this checkpoint was trained to exit
    note: str = ""

    def footprint(self, dtype: torch.dtype) -> Footprint:
        cache = 2 * self.layers * self.kv_heads * self.head_dim * dtype.itemsize
        return Footprint(self.parameters, self.parameters * dtype.itemsize, cache)


_PICKLED = "published with pickled weights; loads only where the hub offers a safetensors copy"

CATALOGUE: tuple[Entry, ...] = (
    Entry(embedded.NAME, "SmolLM2", SMOLLM2, embedded.PARAMETERS, 30, 3, 64, 8192, note=embedded.PROVENANCE),
    Entry("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2", SMOLLM2, 134_515_008, 30, 3, 64, 8192),
    Entry("HuggingFaceTB/SmolLM2-360M-Instruct", "SmolLM2", SMOLLM2, 361_821_120, 32, 5, 64, 8192),
    Entry("HuggingFaceTB/SmolLM2-1.7B-Instruct", "SmolLM2", SMOLLM2, 1_711_376_384, 24, 32, 64, 8192),
    Entry("Qwen/Qwen2.5-0.5B-Instruct", "Qwen2.5", QWEN, 494_032_768, 24, 2, 64, 32768),
    Entry("Qwen/Qwen2.5-1.5B-Instruct", "Qwen2.5", QWEN, 1_543_714_304, 28, 2, 128, 32768),
    Entry("Qwen/Qwen2.5-3B-Instruct", "Qwen2.5", QWEN, 3_085_938_688, 36, 2, 128, 32768),
    Entry("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5", QWEN, 7_615_616_512, 28, 4, 128, 32768),
    Entry("Qwen/Qwen2.5-14B-Instruct", "Qwen2.5", QWEN, 14_770_033_664, 48, 8, 128, 32768),
    Entry("Qwen/Qwen3-0.6B", "Qwen3", QWEN, 596_049_920, 28, 8, 128, 40960),
    Entry("Qwen/Qwen3-1.7B", "Qwen3", QWEN, 1_720_574_976, 28, 8, 128, 40960),
    Entry("Qwen/Qwen3-4B", "Qwen3", QWEN, 4_022_468_096, 36, 8, 128, 40960),
    Entry("Qwen/Qwen3-8B", "Qwen3", QWEN, 8_190_735_360, 36, 8, 128, 40960),
    Entry("Qwen/Qwen3-14B", "Qwen3", QWEN, 14_768_307_200, 40, 8, 128, 40960),
    Entry("Qwen/Qwen3-32B", "Qwen3", QWEN, 32_762_123_264, 64, 8, 128, 40960),
    Entry("meta-llama/Llama-3.2-1B-Instruct", "Llama 3", LLAMA3, 1_235_814_400, 16, 8, 64, 131072, gated=True),
    Entry("meta-llama/Llama-3.2-3B-Instruct", "Llama 3", LLAMA3, 3_212_749_824, 28, 8, 128, 131072, gated=True),
    Entry("meta-llama/Llama-3.1-8B-Instruct", "Llama 3", LLAMA3, 8_030_261_248, 32, 8, 128, 131072, gated=True),
    Entry("meta-llama/Llama-3.3-70B-Instruct", "Llama 3", LLAMA3, 70_553_706_496, 80, 8, 128, 131072, gated=True),
    Entry("google/gemma-3-270m-it", "Gemma 3", GEMMA3, 268_098_176, 18, 1, 256, 32768, gated=True),
    Entry("google/gemma-3-1b-it", "Gemma 3", GEMMA3, 999_885_952, 26, 1, 256, 32768, gated=True),
    Entry("EleutherAI/pythia-70m", "Pythia", PYTHIA, 70_426_624, 6, 8, 64, 2048),
    Entry("EleutherAI/pythia-160m", "Pythia", PYTHIA, 162_322_944, 12, 12, 64, 2048),
    Entry("EleutherAI/pythia-410m", "Pythia", PYTHIA, 405_334_016, 24, 16, 64, 2048),
    Entry("EleutherAI/pythia-1b", "Pythia", PYTHIA, 1_011_781_632, 16, 8, 256, 2048),
    Entry("EleutherAI/pythia-1.4b", "Pythia", PYTHIA, 1_414_647_808, 24, 16, 128, 2048),
    Entry("EleutherAI/pythia-2.8b", "Pythia", PYTHIA, 2_775_208_960, 32, 32, 80, 2048),
    Entry("EleutherAI/pythia-6.9b", "Pythia", PYTHIA, 6_857_302_016, 32, 32, 128, 2048),
    Entry("EleutherAI/pythia-12b", "Pythia", PYTHIA, 11_846_072_320, 36, 40, 128, 2048),
    Entry("facebook/opt-125m", "OPT", OPT, 125_239_296, 12, 12, 64, 2048, note=_PICKLED),
    Entry("facebook/opt-350m", "OPT", OPT, 331_196_416, 24, 16, 64, 2048, note=_PICKLED),
    Entry("facebook/opt-1.3b", "OPT", OPT, 1_315_758_080, 24, 32, 64, 2048, note=_PICKLED),
    Entry("facebook/opt-2.7b", "OPT", OPT, 2_651_596_800, 32, 32, 80, 2048, note=_PICKLED),
    Entry("facebook/opt-6.7b", "OPT", OPT, 6_658_473_984, 32, 32, 128, 2048, note=_PICKLED),
    Entry("facebook/layerskip-llama3.2-1B", "LayerSkip", LLAMA3, 1_235_814_400, 16, 8, 64, 131072, gated=True, early_exits=(4, 8)),
    Entry("facebook/layerskip-llama2-7B", "LayerSkip", LLAMA2, 6_738_415_616, 32, 32, 128, 4096, gated=True, early_exits=(4, 8)),
    Entry("facebook/layerskip-llama3-8B", "LayerSkip", LLAMA3, 8_030_261_248, 32, 8, 128, 8192, gated=True, early_exits=(4, 8)),
)

BY_NAME = {entry.name: entry for entry in CATALOGUE}


def vocabulary_of_size(tokens: int) -> Vocabulary | None:
    """The curated vocabulary that a tokenizer of this many tokens most likely is; loading compares token by token."""
    known = {size: entry.vocabulary for entry in CATALOGUE for size in entry.vocabulary.sizes}
    return known.get(tokens)
