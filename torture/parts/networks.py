"""Random networks with random settings, compared with reference kernels and PyTorch in float64."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from torture.allowance import Allowance, Outcome

CASES = 20_000
SMALL = 4


def _fails_so(judge: Callable[..., Any], failure: str, case: Any) -> bool:
    return bool(judge(case.network, case.setting).failure == failure)


def run(allowance: Allowance) -> Outcome:
    """A case is a network with its settings; `--seed N --cases 1` reproduces network N."""
    from tests.differential import agreement, torch_peer
    from tests.differential.draw import draw
    from tests.differential.program import program
    from tests.differential.run import HITS
    from tests.differential.shrink import shrunk

    failures: list[str] = []
    arrays = vague = kinks = rounding = cases = peers = 0
    has_peer = find_spec("torch") is not None
    for seed in allowance:
        case = draw(seed)
        verdict = agreement.judge(case.network, case.setting)
        cases, arrays, vague = cases + 1, arrays + verdict.arrays, vague + verdict.vague
        kinks, rounding = kinks + verdict.kink, rounding + verdict.rounding
        if has_peer and (part := torch_peer.common(case.network)) is not None:
            peers += 1
            if found := torch_peer.differs(part):
                failures.append(f"seed {seed}: {found}")
        if verdict.wrong:
            failures.append(f"seed {seed}: {verdict.wrong}")
            small = shrunk(case, partial(_fails_so, agreement.judge, verdict.failure), seconds=20)
            print(program(small), file=sys.stderr)
    hit = len({name for name, count in HITS.changed.items() if count})
    note = (
        f"{arrays} arrays, {vague} badly conditioned; {kinks} networks at a kink, {rounding} that round "
        f"badly, {peers} held against PyTorch; {hit} rewrites hit"
    )
    return Outcome(cases, failures, note)
