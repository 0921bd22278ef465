"""From what a person typed to token ids: chat template or plain completion."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from hsd.errors import BadInput
from hsd.records import is_text
from hsd.settings import MAX_PROMPT_CHARACTERS

Message = dict[str, str]  # {"role": "user" | "assistant" | "system", "content": …}


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[Message], *, raw: bool = False, system: str | None = None
) -> list[int]:
    """Token ids of a prompt: through the model's chat template where it has one, as it stands with `raw`.

    A string is one user turn; a list of messages is a whole history. Raises `BadInput` for an empty prompt, a prompt
    too long to be meant, a history that the template refuses, or a system prompt that nothing would read.
    """
    turns: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(turn) for turn in prompt]
    check_prompt(turns, raw=raw, system=system)
    quiet = {"verbose": False}  # a prompt longer than the context is told by the run itself
    if raw or not tokenizer.chat_template:
        if system:
            raise BadInput("This model has no chat template and so takes no system prompt; put it into the prompt.")
        token_ids = tokenizer("\n".join(turn["content"] for turn in turns), **quiet)["input_ids"]
    else:
        if system:
            turns.insert(0, {"role": "system", "content": system})
        try:
            settings = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "tokenizer_kwargs": quiet}
            token_ids = tokenizer.apply_chat_template(turns, **settings)["input_ids"]
        except Exception as error:  # templates are Jinja written by others and raise what they like
            raise BadInput(f"The model's chat template refuses this conversation ({error}). Use plain completion instead.") from error
    if not token_ids:
        raise BadInput("The prompt gives no tokens; type some text.")
    return list(token_ids)


def check_prompt(turns: Sequence[Message], *, raw: bool, system: str | None) -> None:
    """Raise `BadInput` for what can be told of a prompt without its model."""
    if not turns or not any(turn.get("content", "").strip() for turn in turns):
        raise BadInput("The prompt is empty; type some text.")
    for turn in turns:
        if turn.get("role") not in ("system", "user", "assistant") or not isinstance(turn.get("content"), str):
            raise BadInput("Each message needs a role (system, user or assistant) and a content text.")
    if sum(len(turn["content"]) for turn in turns) > MAX_PROMPT_CHARACTERS:
        raise BadInput(f"The prompt is longer than {MAX_PROMPT_CHARACTERS:,} characters; shorten it.")
    if not all(map(is_text, [*(turn["content"] for turn in turns), system or ""])):
        raise BadInput("The prompt holds bytes that are no characters; give it as UTF-8 text.")
    if raw and system:
        raise BadInput("Plain completion takes no system prompt; put it into the prompt, or use the chat template.")
