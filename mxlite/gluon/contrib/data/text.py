"""WikiText: articles as rows of word numbers, each row with the same one word later as its label."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....core.errors import MissingFileError, RangeError
from ....core.wanted import whole
from ....io.text.utils import count_tokens_from_str
from ....io.text.vocab import Vocabulary
from ...data.dataset import Dataset

_END = "<eos>"
_FILES = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


class _WikiText(Dataset):
    """Words of a local file in rows of `seq_len`, int32, with `_END` after each line; the rest is dropped.

    vocab: the numbers of words; None makes them from the file, and `vocabulary` gives them to another one.
    """

    def __init__(self, root: str, segment: str, vocab: Vocabulary | None, seq_len: int) -> None:
        length = whole(f"{type(self).__name__}: seq_len", seq_len, 1)
        if segment not in _FILES:
            raise RangeError(
                f"{type(self).__name__}: segment must be one of {', '.join(_FILES)}, got {segment!r}."
            )
        file = Path(os.path.expanduser(root)) / _FILES[segment]
        if not file.exists():
            raise MissingFileError(
                f"{type(self).__name__}: {file} is not there, and mxlite downloads nothing. Put "
                f"{', '.join(_FILES.values())} into that folder, or name theirs with root=."
            )
        content = file.read_text(encoding="utf8")
        self._frequencies: Counter[str] | None = None
        if vocab is None:
            self._frequencies = count_tokens_from_str(content)
            vocab = Vocabulary(self._frequencies, reserved_tokens=[_END])
        self._vocabulary = vocab
        lines = [words for words in map(str.split, content.splitlines()) if words]
        numbers = np.array(vocab.to_indices([w for words in lines for w in (*words, _END)]), np.int32)
        rows = max(len(numbers) - 1, 0) // length
        self._data = numbers[: rows * length].reshape(rows, length)
        self._label = numbers[1 : rows * length + 1].reshape(rows, length)

    @property
    def vocabulary(self) -> Vocabulary:
        """The numbers of the words."""
        return self._vocabulary

    @property
    def frequencies(self) -> Counter[str] | None:
        """How often each word comes; None if the vocabulary was given."""
        return self._frequencies

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, idx: int) -> Any:
        return tuple(nd.array(rows[idx], dtype=np.int32) for rows in (self._data, self._label))


class WikiText2(_WikiText):
    """WikiText-2, 2 million words: (words, the same one later), each int32 of shape (seq_len,).

    segment: 'train', 'validation' or 'test'.  MissingFileError if its file is not in the folder `root`.
    """

    def __init__(
        self,
        root: str = os.path.join("~", ".mxnet", "datasets", "wikitext-2"),
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ) -> None:
        super().__init__(root, segment, vocab, seq_len)


class WikiText103(_WikiText):
    """WikiText-103, 103 million words; as `WikiText2`."""

    def __init__(
        self,
        root: str = os.path.join("~", ".mxnet", "datasets", "wikitext-103"),
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ) -> None:
        super().__init__(root, segment, vocab, seq_len)
