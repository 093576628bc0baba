"""Numbers for tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...core.errors import ArgumentError, RangeError
from ...core.wanted import found, wanted, whole


class Vocabulary:
    """Tokens and their indices: first the one for all unknown ones, then `reserved_tokens`, then those
    counted.

    The tokens of `counter` come by falling count, equal counts by the alphabet: at most `most_freq_count` of
    them, and none that was counted less than `min_freq` times.
    """

    def __init__(
        self,
        counter: Counter[str] | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: str = "<unk>",
        reserved_tokens: Sequence[str] | None = None,
    ) -> None:
        least = whole("min_freq", min_freq, 1)
        reserved = None if reserved_tokens is None else list(reserved_tokens)
        first = [unknown_token, *(reserved or ())]
        if len(set(first)) < len(first):
            twice = next(t for i, t in enumerate(first) if t in first[:i])
            raise ArgumentError(f"Vocabulary: the unknown and the reserved tokens name {twice!r} twice.")
        self._unknown_token = unknown_token
        self._reserved_tokens = reserved
        self._idx_to_token = first
        if counter is not None:
            wanted("Vocabulary: counter", counter, "a collections.Counter", Counter)
            most = len(counter) if most_freq_count is None else whole("most_freq_count", most_freq_count, 0)
            ranked = sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))
            new = [t for t, count in ranked if count >= least and t not in set(first)]
            self._idx_to_token = first + new[:most]
        self._token_to_idx = {t: i for i, t in enumerate(self._idx_to_token)}

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[str, int]:
        """Index of each token."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[str]:
        """Tokens in the order of their indices."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> str:
        """The token that stands for all tokens without an index: index 0."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[str] | None:
        """Tokens that were given an index without being counted."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """The index of a token, or of each of a list; 0 for one that has none."""
        if isinstance(tokens, (list, tuple)):
            return [self._token_to_idx.get(t, 0) for t in tokens]
        return self._token_to_idx.get(tokens, 0)

    def to_tokens(self, indices: Any) -> Any:
        """The token of an index, or of each of a list. RangeError for an index that there is not."""
        if isinstance(indices, (list, tuple)):
            return [self.to_tokens(i) for i in indices]
        if not hasattr(indices, "__index__") or not 0 <= indices.__index__() < len(self):
            raise RangeError(f"An index of this vocabulary is in [0, {len(self)}), got {found(indices)}.")
        return self._idx_to_token[indices.__index__()]
