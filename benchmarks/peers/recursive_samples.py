"""Samples and parameters of the recursive networks that benchmarks/dynamic.py measures: equal for all peers.

- `tree`: a binary Tree-LSTM over random trees of 5 to 33 words, 19 in the mean, a class for the root.
- `rvnn`: h = tanh(W [left, right] + b) over the same trees.
- `tagger`: a BiLSTM over 10 to 28 words with a tag for each; a fifth of the words are rare, and are what a
  BiLSTM
  over their 3 to 12 letters says.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

HIDDEN, WORDS, CLASSES = 256, 2000, 5
LETTERS, LETTER, LETTER_STATE, WORD = 64, 32, 64, 128
MLP, TAGS = 32, 17

Tree = Any
"""A word's number, or a pair of trees."""


def _lstm(name: str, data: int, state: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}_weight": (4 * state, data + state), f"{name}_bias": (4 * state,)}


def _dense(name: str, out: int, data: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}_weight": (out, data), f"{name}_bias": (out,)}


SHAPES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "tree": {
        "words_weight": (WORDS, HIDDEN),
        **_dense("leaf", 3 * HIDDEN, HIDDEN),
        **_dense("join", 5 * HIDDEN, 2 * HIDDEN),
        **_dense("out", CLASSES, HIDDEN),
    },
    "rvnn": {
        "words_weight": (WORDS, HIDDEN),
        **_dense("join", HIDDEN, 2 * HIDDEN),
        **_dense("out", CLASSES, HIDDEN),
    },
    "tagger": {
        "words_weight": (WORDS, WORD),
        "letters_weight": (LETTERS, LETTER),
        **_lstm("letters_fore", LETTER, LETTER_STATE),
        **_lstm("letters_back", LETTER, LETTER_STATE),
        **_lstm("fore", WORD, HIDDEN),
        **_lstm("back", WORD, HIDDEN),
        **_dense("mlp", MLP, 2 * HIDDEN),
        **_dense("out", TAGS, MLP),
    },
}


def parameters(net: str) -> dict[str, np.ndarray]:
    """First values, by name."""
    rng = np.random.default_rng(0)
    return {
        n: (rng.standard_normal(s) / np.sqrt(s[-1]) if len(s) > 1 else np.zeros(s)).astype("float32")
        for n, s in SHAPES[net].items()
    }


def samples(net: str, count: int, seed: int = 0) -> list[Any]:
    """(tree, class), or (words, tags) in which a rare word is the list of its letters."""
    draw = random.Random(seed)
    return [_sentence(draw) if net == "tagger" else _sample(draw) for _ in range(count)]


def _sample(draw: random.Random) -> tuple[Tree, int]:
    return _tree(draw, draw.randint(5, 33)), draw.randrange(CLASSES)


def _tree(draw: random.Random, words: int) -> Tree:
    if words == 1:
        return draw.randrange(WORDS)
    left = draw.randrange(1, words)
    return _tree(draw, left), _tree(draw, words - left)


def _sentence(draw: random.Random) -> tuple[list[Any], list[int]]:
    words: list[Any] = []
    for _ in range(draw.randint(10, 28)):
        rare = draw.random() < 0.2
        words.append(
            [draw.randrange(LETTERS) for _ in range(draw.randint(3, 12))] if rare else draw.randrange(WORDS)
        )
    return words, [draw.randrange(TAGS) for _ in words]
