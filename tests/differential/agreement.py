"""The oracle, and how far from it a result may be.

The oracle is the network in float64 by reference kernels. What is tested may miss it by

    OWN * what the reference kernels miss it by in the types tested   (rounding, as this network spreads it)
    + ROUND * eps * the largest number of the array                   (another order of a sum)
    + ROUND / 8 * eps * the largest of all gradients, outputs, ...    (sums that cancel: a bias before a norm)
    + an ulp of a parameter for each step, where it is compared how far that has moved

in its largest error, and by less in the root of the mean of squares. Where the reference itself misses by
more than LIMIT of the largest number, the network is too badly conditioned to say anything, and is counted as
such: no array passes with an error of more than that. Rounding may also hit a kink (a rectifier at 0, two
equal maxima) and make another gradient. It does not do so with other numbers; a wrong rewrite does.
So what disagrees is run again on other numbers, and counts where `AGAIN` of those disagree, too.

One run of the reference is one sample of what rounding does to a network: it may be a lucky one. What still
disagrees is `rounding` if its error is one that the reference has as well when its inputs are an ulp beside
themselves, `SHAKEN` times, and if that is so behind the same passes in float64, too: there a wrong rewrite is
as wrong as before, and rounding next to nothing. A wrong kernel of a narrow type is beyond all samples. Where
reference kernels run behind the passes there is no such kernel, and the same operators in float64 decide on
an error of up to `FAR` times as much: inputs an ulp beside themselves say too little if something saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mxlite.backends.elementwise.formula import elementwise_operators

from .network import Network
from .run import Numbers, oracle, Ran, rough, run, wide
from .setting import Setting
from .values import ULP

OWN = {"float64": 16.0, "float32": 16.0, "float16": 8.0, "bfloat16": 8.0}
ROUND = {"float64": 128.0, "float32": 128.0, "float16": 4.0, "bfloat16": 4.0}
LIMIT = {"float64": 1e-6, "float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
AGAIN = (2, 3)  # of so many
SHAKEN = 6
FAR, SHRUNK = 4.0, 1e-9
_ELEMENTWISE = {op.op_name for op in elementwise_operators()}


@dataclass(frozen=True)
class Verdict:
    """What was found: `wrong` says so in words, empty where all agree. `vague`: badly conditioned arrays.
    `kink` and `rounding` say why there is nothing wrong where one run is beyond its bound.
    """

    wrong: str = ""
    arrays: int = 0
    vague: int = 0
    kink: bool = False
    rounding: bool = False
    worst: float = 0.0
    operators: tuple[str, ...] = ()

    @property
    def failure(self) -> str:
        """Of which kind it is: the error's class, "bits" of a budget or "numbers"; "" where all agree.

        A failing network that is made smaller has to fail in the same way: parts of it may be refused.
        """
        if self.wrong.startswith("within a budget"):
            return "bits"
        return "numbers" if self.wrong.startswith("'") else self.wrong.partition(":")[0]


def judge(network: Network, setting: Setting) -> Verdict:
    """Whether `network` under `setting` gives what the oracle gives."""
    first = _once(network, setting)
    if not first.wrong or first.wrong.startswith("!"):
        return replace(first, wrong=first.wrong.removeprefix("!"))
    least, most = AGAIN
    again = [_once(network, replace(setting, values=setting.values + 100 * (i + 1))) for i in range(most)]
    if sum(bool(v.wrong) for v in again) < least:
        return replace(first, wrong="", kink=True)
    if _is_rounding(network, setting) or _shrinks(network, setting, first.operators):
        return replace(first, wrong="", rounding=True)
    return first


def _is_rounding(network: Network, setting: Setting) -> bool:
    """Whether the reference rounds as badly, in the types of `setting` and in float64."""
    return not any(_once(network, s, SHAKEN).wrong for s in (wide(setting), setting))


def _shrinks(network: Network, setting: Setting, operators: tuple[str, ...]) -> bool:
    """Whether reference kernels have run behind passes, and what disagreed is next to nothing in float64. It
    is not beyond `FAR` times what samples of the reference allow.
    """
    if setting.pipeline == "cpu" or _once(network, setting, SHAKEN, FAR).wrong:
        return False
    exact, got = run(network, oracle(setting)).numbers, run(network, wide(setting))
    if _apart(got.operators) != _apart(operators) or set(got.numbers) != set(exact):
        return False
    return all(_most(got.numbers[n] - x) <= SHRUNK * max(1.0, _most(x)) for n, x in exact.items())


def _apart(operators: tuple[str, ...]) -> list[str]:
    """`operators` without fused ones: which of them are joined may depend on their types."""
    return sorted(n for n in operators if n not in _ELEMENTWISE and not n.startswith("_fused_computation"))


def _once(network: Network, setting: Setting, shaken: int = 0, far: float = 1.0) -> Verdict:
    """A verdict on one set of numbers; "!" before what needs no other numbers to be wrong. `shaken`: how many
    more samples of the reference say what rounding does. `far`: how many times that is allowed.
    """
    try:
        got = run(network, replace(setting, budget="none"))
        if setting.budget != "none":
            within = run(network, setting)
            if differs := _bits(within, got):
                return Verdict(f"!within a budget ({setting.budget}): {differs}")
    except Exception as error:
        text = str(error).splitlines()
        return Verdict(f"!{type(error).__name__}: {text[0] if text else ''}")
    exact = run(network, oracle(setting)).numbers

    def samples() -> list[Numbers]:
        return [run(network, replace(rough(setting), shake=i)).numbers for i in range(shaken + 1)]

    return _compared(got, exact, samples, setting, far)


def _bits(a: Ran, b: Ran) -> str:
    for name, x in b.numbers.items():
        if not np.array_equal(x.view(np.uint8), a.numbers[name].view(np.uint8)):
            return f"{name!r} is not the same bit for bit"
    return ""


def _compared(
    got: Ran, exact: Numbers, samples: Callable[[], Sequence[Numbers]], setting: Setting, far: float
) -> Verdict:
    kind = setting.amp or setting.dtype
    if set(got.numbers) != set(exact):
        return Verdict(f"!there are {sorted(set(got.numbers) ^ set(exact))} in one alone")
    largest: dict[str, float] = {}
    for name, x in exact.items():
        group = name.rsplit(" ", 1)[0]
        if x.size and not np.isfinite(x).all():
            return Verdict(arrays=len(exact), vague=len(exact), operators=got.operators)
        largest[group] = max(largest.get(group, 0.0), _most(x))
    like: Sequence[Numbers] = ()
    vague, worst = 0, 0.0
    for name, x in exact.items():
        y = got.numbers[name]
        if y.shape != x.shape:
            return Verdict(f"!{name!r} is {y.shape}, not {x.shape}")
        if not x.size:
            continue
        whole = largest[name.rsplit(" ", 1)[0]]
        slack = ROUND[kind] * ULP[kind] * (_most(x) + whole / 8) + got.grain.get(name, 0.0)
        error = y.astype(np.float64) - x
        if _most(error) <= slack * (0.25 if setting.amp else 1):
            worst = max(worst, _most(error) / slack if slack else 0.0)
            continue
        like = like or samples()
        if not all(np.isfinite(a).all() for sample in like for a in sample.values()):
            # It overflows in this type: a step with a loss scale is left out then, the reference takes it.
            return Verdict(arrays=len(exact), vague=len(exact), operators=got.operators)
        own = [sample[name].astype(np.float64) - x for sample in like]
        misses = max(map(_most, own))
        if misses > LIMIT[kind] * max(_most(x), whole / 8):
            vague += 1
            continue
        allowed = min(far * OWN[kind] * misses + slack, LIMIT[kind] * max(_most(x), whole))
        mean = far * OWN[kind] / 2 * max(map(_mean, own)) + slack
        share = max(_most(error) / allowed, _mean(error) / mean) if allowed else np.inf
        if not share <= 1:
            at = int(np.nanargmax(np.abs(np.where(np.isfinite(error), error, np.inf))))
            return Verdict(
                f"{name!r}: {y.reshape(-1)[at]:.7g} instead of {x.reshape(-1)[at]:.7g} at {at} of {x.shape}; "
                f"the reference misses by {misses:.2g}, {allowed:.2g} is allowed",
                len(exact),
                vague,
                operators=got.operators,
            )
        worst = max(worst, share)
    return Verdict("", len(exact), vague, worst=worst, operators=got.operators)


def _most(x: np.ndarray) -> float:
    """The largest absolute number; inf where one is none."""
    found = float(np.abs(x).max()) if x.size else 0.0
    return found if np.isfinite(found) else np.inf


def _mean(x: np.ndarray) -> float:
    """The root of the mean of squares; inf where a number is none."""
    found = float(np.sqrt(np.mean(np.square(x.astype(np.float64)))))
    return found if np.isfinite(found) else np.inf
