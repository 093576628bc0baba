"""Every rule that every row of `cases.py` is held to, by what it says."""

from __future__ import annotations

from tests.conformance import conformance, conformance_bound, conformance_kinds, conformance_peers
from tests.conformance.second_order import check_derivative

RULES = {
    **conformance.RULES,
    **conformance_bound.RULES,
    **conformance_kinds.RULES,
    **conformance_peers.RULES,
    "has a gradient that can be differentiated": check_derivative,
}
