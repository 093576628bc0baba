"""Reference figures: what others reach, and the best plans that were known before this planner.

Those of memonger's ResNets were measured by us with prototypes on the problems of networks/feature_maps.py
(the same bytes for six schedules; see `PROOFS`): the best of a dense grid of keep-sets, dynamic programming
over blocks, annealing and CP-SAT, in place unless stated otherwise. None is proven to be optimal.
"""

from __future__ import annotations

HEADLINE_STAGES = (15, 120, 180, 15)
"""991 convolutions: five times memonger's example. The paper does not state the stages of its network."""

PROOFS = {
    "one buffer each, maps and gradients; norm and rectifier apart": (100.9, None),
    "in-place and sharing": (47.37, 0.0),
    "drop norm and activation": (29.55, 5.6),
    "drop norm, activation and sum": (26.25, 9.3),
}
"""GB (2^30 bytes) and extra time in per cent of fixed schedules: equal figures show that the problem is the
same. Published for in-place and sharing: 48 (T. Chen et al. 2016)."""

EXTRA_AT = {16: 10.0, 12: 11.6, 8: 14.8, 7: 15.7, 6: 17.5, 5: 19.8, 4: 24.1, 3: 30.2, 2: 35.9, 1: 53.4}
"""Least known extra time in per cent by budget in GB."""

CHEN_AT_7 = 36.6
"""Extra time in per cent at 7 GB with sqrt(n) segments (T. Chen et al. 2016, who report about 30)."""

GB_AT = {0: 47.4, 10: 16.2, 20: 5.0, 30: 3.1}
"""Least known GB by extra time in per cent."""

SHARES_OF_199 = {0.80: 2.90, 0.60: 5.91, 0.40: 8.99, 0.25: 12.15, 0.15: 19.04}
"""[3, 24, 36, 3]: fraction of keep-all's arena -> least known per cent."""

SHARES_OF_19 = {0.70: 5.01, 0.55: 7.93, 0.45: 9.87, 0.40: 11.01}
"""[1, 2, 2, 1], in-place off: the same, by CP-SAT in 20 s."""

LSTM_RATIO = 4.0
"""Published (T. Chen et al. 2016): sharing needs more than this many times the least memory."""
