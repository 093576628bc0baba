"""Switch of the check of rewrites: with MXLITE_CHECK_REWRITES=1 each pass is checked, wherever it runs.

It stands above both the passes and the check, which evaluates graphs and so needs all that runs them.
"""

from __future__ import annotations

from ...core import config
from ..rewrite import always_observed, Rewrite


@always_observed
def check_if_asked(rewrite: Rewrite) -> None:
    """Raise RewriteError if the check is on and the pass has changed what a network computes."""
    if rewrite.changed and config.check_rewrites():
        from .rewrite_check import check  # what it imports takes a while, and few ask for it

        check(rewrite)
