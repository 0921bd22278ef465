"""Compare two tokenizers token by token: token i of the draft must mean what token i of the target means."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from hsd.errors import BadInput
from hsd.generate.prompt import encode_prompt
from hsd.pick.load import load_config, load_tokenizer

_SHOWN = 3  # differing tokens named in a sentence
_ADVICE = "choose a draft of the same family."


@dataclass(frozen=True, slots=True)
class Difference:
    """One id whose meaning differs; `None` where a tokenizer has no such id."""

    token_id: int
    target_token: str | None
    draft_token: str | None


@dataclass(frozen=True, slots=True)
class VocabularyMatch:
    """Outcome of a comparison. Rows of an embedding matrix beyond the tokenizer are padding and do not count."""

    target_size: int
    draft_size: int
    differences: tuple[Difference, ...]

    @property
    def compatible(self) -> bool:
        return not self.differences

    def explain(self, draft: str, target: str) -> str:
        """One sentence on what differs; empty when nothing does."""
        if self.compatible:
            return ""
        shown = ", ".join(f"{d.token_id} ({_quoted(d.target_token)} / {_quoted(d.draft_token)})" for d in self.differences[:_SHOWN])
        more = f" and {len(self.differences) - _SHOWN:,} more" if len(self.differences) > _SHOWN else ""
        total = max(self.target_size, self.draft_size)
        return (
            f"{draft} has another vocabulary than {target}: {len(self.differences):,} of {total:,} token ids differ "
            f"(id {shown}{more}); {_ADVICE}"
        )


def why_unusable(target: PreTrainedTokenizerBase, draft_name: str, target_name: str) -> str:
    """One sentence on why a draft cannot read or write the target's tokens, empty when it can. Raises as `load_config` does."""
    match = compare(target, load_tokenizer(draft_name))
    if not match.compatible:
        return match.explain(draft_name, target_name)
    rows = load_config(draft_name).get_text_config().vocab_size
    largest = _largest_of_every_prompt(target)
    if largest < rows:
        return ""
    token = _quoted(target.convert_ids_to_tokens(largest))
    return f"Every prompt of {target_name} holds the token {token} (id {largest}), and {draft_name} knows {rows:,} tokens only; {_ADVICE}"


def compare(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> VocabularyMatch:
    """Compare every id of both vocabularies. How a tokenizer cuts text does not matter: only the target's one does that.

    An id that only one of them knows is no obstacle when it is an added (special) token at the end: a draft without it
    never proposes it, and a proposal that the target cannot make is rejected.
    """
    target_tokens, draft_tokens = _tokens(target), _tokens(draft)
    special = set(target.get_added_vocab().values()) | set(draft.get_added_vocab().values())
    differences = []
    for token_id in sorted(target_tokens.keys() | draft_tokens.keys()):
        ours, theirs = target_tokens.get(token_id), draft_tokens.get(token_id)
        if ours == theirs or ((ours is None or theirs is None) and token_id in special):
            continue
        differences.append(Difference(token_id, ours, theirs))
    return VocabularyMatch(len(target_tokens), len(draft_tokens), tuple(differences))


def _tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def _largest_of_every_prompt(tokenizer: PreTrainedTokenizerBase) -> int:
    """The largest id that a chat template, or the tokenizer itself, adds to a prompt."""
    try:
        return max(encode_prompt(tokenizer, "a"))
    except BadInput:  # a template that takes no such prompt; text as it stands may do
        return 0


def _quoted(token: str | None) -> str:
    return "none" if token is None else f"“{token[:24]}”"
