"""Choice and order of the measurements of benchmarks/gpu.py: networks, each with its columns."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from networks.suite import Net
from peers.column import Column

from . import columns as known, nets

NET, DEEP, BATCH = "net", "deep", "batch"
PRECISION = {DEEP: "bf16", BATCH: "tf32"}
"""Default precisions. That of DEEP is the one whose predicted times are within the targets."""


class Unknown(ValueError):
    """An unknown name; the message lists the known ones."""


@dataclass(frozen=True)
class Wanted:
    """A network and its columns. kind: NET, DEEP (ResNet-1001 within budgets) or BATCH (largest batch)."""

    kind: str
    net: Net
    columns: tuple[Column, ...]


def wanted(args: argparse.Namespace) -> list[Wanted]:
    """Selected measurements in the order of `--nets`, columns in the order of `--columns`. Raises Unknown."""
    every = {w.kind if w.kind != NET else w.net.name: w for w in _all(args)}
    names = args.nets.split(",") if args.nets else [*every]
    if args.quick and not args.emulated and not args.nets:
        names = [*nets.QUICK]
    if missing := [n for n in names if n not in every]:
        raise Unknown(f"there is no network {missing[0]!r}; there are {', '.join(every)}")
    found = [every[n] for n in names]
    if args.columns:
        found = _with_columns(found, args.columns.split(","))
    elif args.quick and not args.emulated:
        found = [w if w.kind != NET else _only(w, known.QUICK) for w in found]
    return found


def _all(args: argparse.Namespace) -> list[Wanted]:
    """All available measurements, in the default order."""
    if args.emulated:
        columns = known.columns() if args.columns else known.picked(known.columns(), known.SMALL)
        return [Wanted(NET, n, tuple(map(known.emulated, columns))) for n in nets.small()]
    found = [Wanted(NET, n, tuple(known.columns())) for n in nets.nets()]
    (resnet,) = [n for n in nets.nets() if n.name == "resnet50"]
    deep = known.within(known.BUDGETS, args.precision or PRECISION[DEEP])
    found.append(Wanted(DEEP, nets.deep(), tuple(deep)))
    found.append(Wanted(BATCH, resnet, tuple(known.batches(args.precision or PRECISION[BATCH]))))
    return found


def _with_columns(found: Sequence[Wanted], names: Sequence[str]) -> list[Wanted]:
    """The measurements restricted to the columns with such names."""
    there = {c.name: c for w in found for c in w.columns}
    for name in names:
        if not known.picked([*there.values()], [name]):
            raise Unknown(f"there is no column {name!r}; there are {', '.join(there)}")
    kept = [_only(w, names) for w in found]
    if bare := [w for w in kept if not w.columns]:
        raise Unknown(f"no column of {bare[0].net.title} ({bare[0].kind}) is among {', '.join(names)}")
    return kept


def _only(wanted: Wanted, names: Sequence[str]) -> Wanted:
    return Wanted(wanted.kind, wanted.net, tuple(known.picked(wanted.columns, names)))
