"""What a program gives here, beside what MXNet 1.9.1 gave."""

import pytest


def agree(mine, theirs, rel=2e-4, nan_ok=False):
    """Equal lists of text and of numbers, these but for rounding."""
    if isinstance(theirs, list):
        assert len(mine) == len(theirs), (mine, theirs)
        for a, b in zip(mine, theirs):
            agree(a, b, rel, nan_ok)
    elif isinstance(theirs, str):
        assert mine == theirs
    else:
        assert mine == pytest.approx(theirs, rel=rel, abs=2e-4, nan_ok=nan_ok)
