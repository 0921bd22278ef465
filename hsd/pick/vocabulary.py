"""Compare two tokenizers token by token: token i of the draft must mean what token i of the target means."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

_SHOWN = 3  # differing tokens named in a sentence


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
    same_splitting: bool  # both cut sample text into the same ids

    @property
    def compatible(self) -> bool:
        return not self.differences and self.same_splitting

    def explain(self, draft: str, target: str) -> str:
        """One sentence on what differs; empty when nothing does."""
        if self.differences:
            shown = ", ".join(
                f"{difference.token_id} ({_quoted(difference.target_token)} / {_quoted(difference.draft_token)})"
                for difference in self.differences[:_SHOWN]
            )
            more = f" and {len(self.differences) - _SHOWN:,} more" if len(self.differences) > _SHOWN else ""
            total = max(self.target_size, self.draft_size)
            return (
                f"{draft} has another vocabulary than {target}: {len(self.differences):,} of {total:,} token ids differ "
                f"(id {shown}{more}); choose a draft of the same family."
            )
        if not self.same_splitting:
            return f"{draft} has the tokens of {target} but cuts text differently; choose a draft of the same family."
        return ""


def compare(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> VocabularyMatch:
    """Compare every id of both vocabularies, and how both cut a sample text.

    Only ids that both tokenizers know can be exchanged. A draft that lacks ids of the target, or has ids beyond them, is
    still usable when those are added special tokens: it never proposes them, or its proposals of them are rejected.
    """
    target_tokens, draft_tokens = _tokens(target), _tokens(draft)
    special = set(target.get_added_vocab().values()) | set(draft.get_added_vocab().values())
    differences = []
    for token_id in sorted(target_tokens.keys() | draft_tokens.keys()):
        ours, theirs = target_tokens.get(token_id), draft_tokens.get(token_id)
        if ours == theirs or ((ours is None or theirs is None) and token_id in special):
            continue
        differences.append(Difference(token_id, ours, theirs))
    return VocabularyMatch(len(target_tokens), len(draft_tokens), tuple(differences), _ids(target) == _ids(draft))


_SAMPLE = "The year 2024 didn't  cost €1,234.50; naïve 漢字 🙂\n\tdef f(x):\n    return x  12"


def _ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    return tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]


def _tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def _quoted(token: str | None) -> str:
    return "none" if token is None else f"“{token[:24]}”"
