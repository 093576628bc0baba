"""Counting words."""

from __future__ import annotations

import re
from collections import Counter

from ...core.wanted import wanted


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter[str] | None = None,
) -> Counter[str]:
    """How often each token comes in a text.

    Tokens are the texts between matches of the regular expressions `token_delim` and `seq_delim`; they are
    converted to lower case afterwards, so that a delimiter in capitals divides. They are added to a copy of
    `counter_to_update`.
    """
    text = wanted("count_tokens_from_str: source_str", source_str, "a text", str)
    tokens = [t for t in re.split(f"{token_delim}|{seq_delim}", text) if t]
    tokens = [t.lower() for t in tokens] if to_lower else tokens
    return Counter(tokens) + (Counter() if counter_to_update is None else counter_to_update)
