"""Batches of sentences of about one length, a bucket. Also known as `mx.rnn`."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..core.disk import schema
from ..core.errors import FormatError, MXLiteError, RangeError
from ..core.log import Log
from ..core.wanted import wanted, whole
from ..ndarray import array, NDArray
from .iterator import DataBatch, DataDesc, DataIter

_log = Log(__name__)


def encode_sentences(
    sentences: Sequence[Sequence[Any]],
    vocab: dict[Any, int] | None = None,
    invalid_label: int = -1,
    invalid_key: Any = "\n",
    start_label: int = 0,
    unknown_token: Any = None,
) -> tuple[list[list[int]], dict[Any, int]]:
    """Sentences of words as lists of numbers, and the vocabulary: word -> number.

    Without `vocab` every new word gets the next number from `start_label` on, but never `invalid_label`,
    which is that of `invalid_key`. With one, an unknown word is `unknown_token`, or an error if that is None.
    """
    wanted("encode_sentences: sentences", sentences, "a list of lists of words", Iterable)
    is_new = vocab is None
    vocab = {invalid_key: invalid_label} if vocab is None else vocab
    number = start_label
    result = []
    for sentence in sentences:
        wanted("encode_sentences: sentences", sentence, "a list of lists of words", Iterable)
        coded = []
        for word in sentence:
            if word not in vocab:
                if not is_new and unknown_token is None:
                    raise MXLiteError(
                        f"The word {word!r} is not in the vocabulary of {len(vocab)} words, and there is no "
                        f"unknown_token to stand for it."
                    )
                if number == invalid_label:
                    number += 1
                if unknown_token is not None:
                    word = unknown_token
                if word not in vocab:
                    vocab[word] = number
                    number += 1
            coded.append(vocab[word])
        result.append(coded)
    return result, vocab


class BucketSentenceIter(DataIter):
    """Batches for language models: `data` are sentences of one bucket, `label` the words that follow.

    sentences: lists of numbers (see `encode_sentences`). Each goes into the shortest of `buckets` that holds
    it, filled up with `invalid_label`; longer ones are left out, and so are those that fill no batch. Without
    `buckets` there is one for each length that at least `batch_size` sentences have.

    data, label: (batch_size, length), with layout "TN" (length, batch_size). A batch has `bucket_key`, its
    length; `default_bucket_key` is the largest, and `provide_buckets` has (data shapes, label shapes) of all
    that come, by key. `reset` shuffles by Python's `random` (batches) and numpy's global generator (sentences
    within a bucket).
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Sequence[int] | None = None,
        invalid_label: float = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        layout: str = "NT",
    ) -> None:
        super().__init__(batch_size)
        if layout.find("N") not in (0, 1):
            raise RangeError(f"layout must be 'NT' (batch, length) or 'TN' (length, batch), got {layout!r}.")
        wanted("BucketSentenceIter: sentences", sentences, "a list of lists of numbers", Sequence)
        for sentence in sentences:
            wanted("BucketSentenceIter: sentences", sentence, "a list of lists of numbers", has=("__len__",))
        if buckets is None or not len(wanted("BucketSentenceIter: buckets", buckets, "a list", list, tuple)):
            counts = Counter(len(s) for s in sentences)
            buckets = [length for length, n in counts.items() if n >= batch_size]
        lengths = sorted(whole("BucketSentenceIter: buckets", b, 1) for b in buckets)
        rows: list[list[np.ndarray]] = [[] for _ in lengths]
        left_out = 0
        for sentence in sentences:
            b = bisect_left(lengths, len(sentence))
            if b == len(lengths):
                left_out += 1
                continue
            row = np.full((lengths[b],), invalid_label, dtype=dtype)
            row[: len(sentence)] = sentence
            rows[b].append(row)
        if left_out:
            _log.warning(
                "Left out %d of %d sentences, longer than the largest bucket.",
                left_out,
                len(sentences),
            )
        self.buckets = [length for length, r in zip(lengths, rows) if r]
        if not self.buckets:
            raise RangeError(
                f"None of {len(sentences)} sentences is in a bucket of {lengths or 'no length at all'}; "
                f"without buckets a length counts that {batch_size} sentences (a batch) have."
            )
        self.data = [np.asarray(r, dtype=dtype) for r in rows if r]
        self.data_name, self.label_name = data_name, label_name
        self.dtype = dtype
        self.invalid_label = invalid_label
        self.layout = layout
        self.major_axis = layout.find("N")
        self.default_bucket_key = max(self.buckets)
        self.provide_data, self.provide_label = self._described(self.default_bucket_key)
        self.provide_buckets = {
            length: self._described(length)
            for length, r in zip(self.buckets, self.data)
            if len(r) >= batch_size
        }
        self.idx = [
            (i, j)
            for i, rows_ in enumerate(self.data)
            for j in range(0, len(rows_) - batch_size + 1, batch_size)
        ]
        self.curr_idx = 0
        self._order = [np.arange(len(d)) for d in self.data]
        self.nddata: list[NDArray] = []
        self.ndlabel: list[NDArray] = []
        self.reset()

    def _described(self, length: int) -> tuple[list[DataDesc], list[DataDesc]]:
        shape = (self.batch_size, length) if self.major_axis == 0 else (length, self.batch_size)
        names = self.data_name, self.label_name
        data, label = ([DataDesc(name, shape, self.dtype, self.layout)] for name in names)
        return data, label

    def reset(self) -> None:
        """Shuffle, and start from the first batch."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        for order in self._order:
            np.random.shuffle(order)  # noqa: NPY002  # MXNet's, so that its seed counts
        self._lay_out()

    def _lay_out(self) -> None:
        self.nddata, self.ndlabel = [], []
        for rows, order in zip(self.data, self._order):
            data = rows[order]
            label = np.full_like(data, self.invalid_label)
            label[:, :-1] = data[:, 1:]
            self.nddata.append(array(data, dtype=self.dtype))
            self.ndlabel.append(array(label, dtype=self.dtype))

    def next(self) -> DataBatch:
        if self.curr_idx == len(self.idx):
            raise StopIteration
        i, j = self.idx[self.curr_idx]
        self.curr_idx += 1
        data, label = (a[i][j : j + self.batch_size] for a in (self.nddata, self.ndlabel))
        if self.major_axis == 1:
            data, label = data.T, label.T
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=self.buckets[i],
            provide_data=[DataDesc(self.data_name, data.shape, self.dtype, self.layout)],
            provide_label=[DataDesc(self.label_name, label.shape, self.dtype, self.layout)],
        )

    def state(self) -> dict[str, Any]:
        return {
            "batches": np.array(self.idx, np.int64).reshape(-1, 2),
            "curr_idx": self.curr_idx,
            "order": [o.astype(np.int64) for o in self._order],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        problem = f"The state of a BucketSentenceIter over {len(self.idx)} batches"
        _STATE(state, problem)
        batches = [(i, j) for i, j in state["batches"].reshape(-1, 2).tolist()]
        order, at = state["order"], state["curr_idx"]
        complete = len(order) == len(self._order) and all(
            np.array_equal(np.sort(o), np.arange(len(d))) for o, d in zip(order, self.data)
        )
        if not complete or sorted(batches) != sorted(self.idx) or not 0 <= at <= len(self.idx):
            raise FormatError(f"{problem} has other sentences or batches.")
        self.idx, self._order, self.curr_idx = batches, order, at
        self._lay_out()


_STATE = schema.fields(
    {
        "batches": schema.array("iu", 2),
        "curr_idx": schema.whole(),
        "order": schema.several(schema.array("iu", 1)),
    }
)
