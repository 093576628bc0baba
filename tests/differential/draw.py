"""A seed becomes a network and a setting to run it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mxlite as mx

from . import losses, motifs_any, motifs_images, motifs_rows
from .draft import Draft, Refused
from .network import Network, Value
from .setting import PIPELINES, Setting


@dataclass(frozen=True)
class Case:
    """A network, how it is run, and the seed that both came of."""

    network: Network
    setting: Setting
    seed: int


SWEEPING = 8
"""One network of this many has no layers, only reductions and what is done around them."""

Motifs = Sequence[tuple[Callable[[Draft], Value], int]]


def draw(seed: int) -> Case:
    """The case of a seed: always the same."""
    d = Draft(seed)
    d.zero = d.chance(0.08)
    with mx.util.np_shape(d.zero):
        return _drawn(d, seed)


def _drawn(d: Draft, seed: int) -> Case:
    if seed % SWEEPING == 6:
        family, wanted = "sweeps", d.one_of((4, 6, 8, 11))
        motifs = [m for m, w in motifs_any.SWEEPS for _ in range(w)]
        _begin(d, family)
    else:
        family = d.one_of(("images", "images", "images", "rows", "rows", "sequences", "sequences"))
        _begin(d, family)
        own: Motifs = motifs_images.MOTIFS if family == "images" else motifs_rows.MOTIFS
        motifs = [m for m, weight in own for _ in range(2 * weight)] + [
            m for m, w in motifs_any.MOTIFS for _ in range(w)
        ]
        if family == "images":
            motifs += [m for m, _ in motifs_rows.MOTIFS]
        wanted = d.one_of((1, 2, 3, 4, 5, 6))
    tries = 0
    while wanted > 0 and tries < 60:
        wanted -= d.attempt(d.one_of(motifs))
        tries += 1
    how = d.one_of(("train", "train", "train", "step", "step", "module", "infer"))
    d.heads = how == "train"
    network = d.network(_outputs(d, how))
    return Case(network, _setting(d, how, network), seed)


def _begin(d: Draft, family: str) -> None:
    """Data, of sizes that often coincide."""
    kind = d.one_of(("coincide", "coincide", "sixteen", "odd", "ones", "common", "common"))
    n = d.one_of((1, 2, 3, 4, 5))
    if family == "sweeps":
        rows, columns = d.one_of(((40, 24), (6, 5), (24, 24), (16, 60)))
        d.widths, shape = {
            "coincide": ((rows,), (rows, rows)),
            "sixteen": ((columns, 16), (n, rows, columns)),
            "odd": ((5, columns), (rows, columns)),
            "ones": ((1, rows), d.one_of(((rows, 1, columns), (1, rows), (rows, 1)))),
            "common": ((rows, columns), (rows, columns)),
        }[kind]
        d.there.append(d.variable((rows,), "data", "parameter"))
        d.there.append(d.variable((rows,), "data", "parameter"))
    elif family == "images":
        d.widths, shape = {
            "coincide": ((4, 8), (4, 4, 4, 4)),
            "sixteen": ((16,), (2, 3, 16, 16)),
            "odd": ((5, 6, 7), (3, 5, 7, 9)),
            "ones": ((1, 4), d.one_of(((n, 1, 6, 6), (n, 4, 1, 8), (n, 4, 8, 1), (1, 1, 5, 5)))),
            "common": ((8, 16), (n, d.one_of((3, 8)), 8, 8)),
        }[kind]
    elif family == "rows":
        d.widths, shape = {
            "coincide": ((8,), (8, 8)),
            "sixteen": ((16, 32), (n, 16)),
            "odd": ((5, 7, 11), (n, 13)),
            "ones": ((1, 3), d.one_of(((1, 6), (6, 1)))),
            "common": ((8, 24, 32), (d.one_of((33, 48, 64)), 24)),
        }[kind]
    else:
        d.widths, shape = {
            "coincide": ((4, 8), (4, 4, 4)),
            "sixteen": ((8, 16), (n, 6, 16)),
            "odd": ((5, 6, 9), (3, 5, 6)),
            "ones": ((1, 4), d.one_of(((1, 5, 4), (5, 1, 4), (3, 4, 1)))),
            "common": ((8, 16), (8, d.one_of((2, 3, 5)), 8)),
        }[kind]
    d.there.append(d.input(shape))
    if d.chance(0.2):
        d.there.append(d.input(shape))
    if d.chance(0.15):
        d.there.append(d.variable(shape, "data", "parameter"))


def _outputs(d: Draft, how: str) -> list[Value]:
    """A loss or two, or values as they are; hidden layers too."""
    made: list[Value] = []
    if how in ("step", "module") or d.chance(0.5):
        for _ in range(1 if d.chance(0.85) else 2):
            for _ in range(20):
                try:
                    before = len(d.variables), len(d.calls)
                    made.append(losses.loss(d))
                    break
                except Refused:
                    del d.variables[before[0] :], d.calls[before[1] :]
    if not made and how in ("step", "module"):
        made.append(d.call("MakeLoss", d.call("square", d.there[-1])))
    elif not made:
        made += {d.there[-1]: None, d.pick(): None} if d.chance(0.3) else [d.there[-1]]
    if d.chance(0.3) and d.calls:  # hidden layers, also those inside of motifs
        inner = [Value(c.name, i) for c in d.calls for i in range(len(c.shapes)) if 0 not in c.shapes[i]]
        for _ in range(d.one_of((1, 1, 2))):
            value = d.one_of(inner)
            made.append(d.call("BlockGrad", value) if how in ("step", "module") else value)
    return list(dict.fromkeys(made))


def _setting(d: Draft, how: Any, network: Network) -> Setting:
    amp = d.one_of(("bfloat16", "bfloat16", "float16")) if d.chance(0.3) else None
    setting = Setting(
        pipeline=PIPELINES[int(d.rng.choice(3, p=(0.5, 0.2, 0.3)))],
        how=how,
        amp=amp,
        loss_scale=64.0 if amp == "float16" else None,
        dtype="float64" if amp is None and d.chance(0.05) else "float32",
        budget=d.one_of(("none", "none", "none", "none", "midway", "least")),
        engine="threaded" if d.chance(0.3) else "naive",
        threads=d.one_of((1, 1, 1, 2, 4)) if d.chance(0.5) else 1,
        optimizer=d.one_of(("sgd", "momentum", "momentum", "adam")),
    )
    if how == "module":
        setting = replace(setting, dtype="float32", budget="none")
    if how == "train":
        names = [v.name for v in network.variables if v.is_trained]
        requests = {n: d.one_of(("add", "null")) for n in names if d.chance(0.15)}
        requests |= {n: "null" for n in names if n in network.data and d.chance(0.6)}
        if set(requests) == set(names) and all(r == "null" for r in requests.values()):
            requests = {}
        setting = replace(setting, requests=requests)
    return setting
