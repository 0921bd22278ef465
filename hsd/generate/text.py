"""Text out of tokens: incremental, and never half a character."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_REPLACEMENT = "�"


class TextStream:
    """Turns committed tokens into text; a character split over tokens arrives whole with its last token.

    The pieces joined are the decoded text, which `finish` completes. Only the newest tokens are decoded again: a window
    that starts one step early, because a token's text may depend on the one before it (leading spaces).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._start = 0  # first token of the window
        self._settled = 0  # tokens whose text was given out in full
        self._given = 0  # characters of the window that were given out
        self._last_piece = 0  # characters of the newest piece
        self.text = ""

    def push(self, token_id: int) -> str:
        """The text that this token completes, possibly empty."""
        self._token_ids.append(token_id)
        window = self._decode(self._token_ids[self._start :])
        # Bytes that are no character yet decode to replacement characters at the end; what stands before them is certain.
        piece = self._give(window.rstrip(_REPLACEMENT))
        if not window.endswith(_REPLACEMENT):
            self._start, self._settled = self._settled, len(self._token_ids)
            self._given = len(self._decode(self._token_ids[self._start :]))
        return piece

    def finish(self) -> str:
        """Whatever was held back because its character never became complete."""
        return self._give(self._decode(self._token_ids[self._start :]))

    def ends_with_any(self, stop: Sequence[str]) -> bool:
        """Whether the last token completed one of the stop strings."""
        return any(text in self.text[-(len(text) + self._last_piece) :] for text in stop)

    def _give(self, window: str) -> str:
        piece = window[self._given :]
        self._given += len(piece)
        self.text += piece
        self._last_piece = len(piece)
        return piece

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


class TokenTexts:
    """The text of single tokens, for showing blocks; remembered, since a draft repeats itself."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def __call__(self, token_id: int) -> str:
        text = self._texts.get(token_id)
        if text is None:
            text = self._tokenizer.decode([token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False)
            self._texts[token_id] = text
        return text
