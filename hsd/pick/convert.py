"""Convert a GGUF file of SmolLM2 to a folder of bfloat16 safetensors: `python -m hsd.pick.convert FILE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, destination: Path) -> None:
    """Write config, weights, tokenizer; prints `step n` (of 3) as it goes. `destination` must not exist."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hsd.pick.load import gguf_options

    print("step 1", flush=True)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, **gguf_options())
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds numbers that are not finite")
    print("step 2", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # GGUF names the pre-tokenizer ("smollm") but transformers rebuilds plain GPT-2's, which splits "a  1" differently.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.config._name_or_path = ""
    print("step 3", flush=True)
    model.save_pretrained(destination)
    tokenizer.save_pretrained(destination)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
