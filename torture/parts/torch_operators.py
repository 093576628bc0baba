"""PyTorch's samples of its operators, imported: refused, or outputs and gradients as PyTorch's."""

from __future__ import annotations

import random
from importlib.util import find_spec
from time import monotonic

from torture.allowance import Allowance, Outcome

CASES = 10_000
SMALL = 12


def run(allowance: Allowance) -> Outcome:
    """A case is a sample, all operators' first, then their second, and so on.

    The seed gives the order of the operators and the numbers in their samples.
    """
    if find_spec("torch") is None or find_spec("expecttest") is None:
        return Outcome(0, [], "left out: it needs the packages torch and expecttest")
    from tests.differential.torch_operators import judge, name, operators, samples

    remaining = [(operator, samples(operator, allowance.seed)) for operator in operators()]
    allowance.started = monotonic()  # PyTorch's list of operators takes seconds, more on a busy machine
    random.Random(allowance.seed).shuffle(remaining)
    failures: list[str] = []
    equal = refused = 0
    seen: set[str] = set()
    for _ in allowance:
        sample = None
        while remaining and sample is None:
            operator, rest = remaining.pop(0)
            sample = next(rest, None)
        if sample is None:
            break
        remaining.append((operator, rest))
        try:
            verdict = judge(sample)
        except Exception as error:
            failures.append(f"{sample}: {type(error).__name__}: {error}")
            continue
        if verdict is None:
            continue
        if verdict.wrong:
            failures.append(f"{sample}: {verdict.wrong}")
        refused += bool(verdict.refused)
        if not verdict.refused:
            equal += 1
            seen.add(name(operator))
    return Outcome(
        equal + refused, failures, f"{equal} samples of {len(seen)} operators; {refused} are refused"
    )
