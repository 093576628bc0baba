"""A request to bind: one description that is checked once and carried from there on.

    Symbol.simple_bind(...)  \
    Symbol.bind(...)          >  BindRequest  ->  Candidates  ->  Planning  ->  link  ->  Executor
    Symbol.memory_plan(...)   |                   (steps)        (a plan)               keeps the request
    Module's binding         /

It describes, and holds no array: a plan keeps it for other budgets, an executor for other shapes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, KW_ONLY
from typing import Any

from ...backends.tune.records import Records
from ...core import BindError, BudgetError, config, Context, current_context, nearest, parse_bytes
from ...graph import Graph, Shape, UpdateRule
from ...memplan import Device, HostLink, Ranks, STRATEGIES
from ...memplan.cost.ranks import ALONE
from ..placement.devices import Devices
from ..plan.metrics import Counted
from .amp import amp_dtype, LossScale
from .watch import Watch

Shapes = Mapping[str, Shape]

MOST_STREAMS = 16  # of kernels


@dataclass(frozen=True, eq=False)
class BindRequest:
    """See above. `shapes` are those of inputs, `ctx` is where it runs; None: the current context.

    `memory_budget` bounds all bytes of the program, as bytes or "512MiB"; `budget` is the number.
    `optimizer` is one whose update is part of the step, and `rule` what it does there. `amp` is the 16-bit
    type of mixed precision, `loss_scale` what 16-bit gradients are multiplied with, `scale` whether it moves.
    `device` is what seconds are reckoned for: a `Device`, text such as "20TFLOP/s,900GB/s", or "measured".
    `offload` is how much may wait in host memory, `host` the planner's form of it. `streams` are for kernels
    on a GPU. `metrics` are what a training step adds up besides, see `metrics.py`; `watch` says which inner
    results are kept to be looked at, see `watch.py`. With `forward_only` no step of training is planned:
    forward(is_train=False) is all that may be run. `ranks` are the processes that train together;
    `parts` names the weights of which each keeps a part, where there is no update that tells. `records` is a
    file of `mxlite tune`, by default the one that MXLITE_RECORDS names, and `schedules` what it says.
    `group2ctx` are the devices of groups of nodes, and `lying` those of arrays that exist, by name; `devices`
    is what follows.
    """

    graph: Graph
    ctx: Context | None
    shapes: Shapes
    _: KW_ONLY
    grad_req: Any = "write"
    type_dict: Mapping[str, Any] | None = None
    memory_budget: int | str | None = None
    optimizer: Any = None
    strategy: str = "sharing"
    amp: Any = None
    loss_scale: float | str | LossScale | None = None
    device: Device | str | None = None
    offload: Offload = None
    streams: int = 1
    metrics: Sequence[Counted] = ()
    watch: Watch | None = None
    forward_only: bool = False
    ranks: Ranks = ALONE
    parts: frozenset[str] = frozenset()
    records: str | Records | None = None
    group2ctx: Mapping[str, Context] | None = None
    lying: Mapping[str, Context] = field(default_factory=dict)
    budget: int | None = field(init=False)
    rule: UpdateRule | None = field(init=False)
    scale: LossScale | None = field(init=False)
    host: HostLink | None = field(init=False)
    schedules: Records | None = field(init=False)
    devices: Devices = field(init=False)

    def __post_init__(self) -> None:
        """Raises what is wrong with the options: BindError, BudgetError, DTypeError."""
        if self.strategy not in STRATEGIES:
            raise BindError(
                f"strategy must be one of {STRATEGIES}, got {self.strategy!r}."
                f"{nearest(self.strategy, STRATEGIES)}"
            )
        check_streams(self.streams)
        amp = amp_dtype(self.amp)
        checked = dict(
            amp=amp,
            budget=None if self.memory_budget is None else parse_bytes(self.memory_budget),
            scale=LossScale.of(self.loss_scale, amp, self.optimizer is not None),
            rule=update_rule(self.optimizer),
            host=host_link(self.offload),
            schedules=schedules_of(self.records),
            devices=Devices.of(self.ctx or current_context(), self.group2ctx, self.lying),
        )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.devices.are_several and self.ranks.count > 1:
            raise BindError(
                f"group2ctx spreads the step over {len(self.devices.contexts)} devices, and ranks= over "
                f"{self.ranks.count} processes: one of them at a time."
            )

    @property
    def may_shard(self) -> bool:
        """True if ranks can share the optimizer's states; a loss scale looks at whole sums."""
        rule = self.rule
        several = self.ranks.count > 1 and self.scale is None
        return several and rule is not None and rule.splits and bool(rule.states)


def schedules_of(records: str | Records | None) -> Records | None:
    """The records of a file when a program is bound. Raises BindError for what names no file."""
    if records is None:
        records = config.records()
    if records is None or isinstance(records, Records):
        return records
    if not isinstance(records, (str, os.PathLike)) or not os.fspath(records):
        raise BindError(f"records must name a file of `mxlite tune`, got {records!r}.")
    return Records.read(os.fspath(records))


def check_streams(streams: int) -> None:
    """Raise BindError if there cannot be so many."""
    if isinstance(streams, bool) or not isinstance(streams, int) or not 1 <= streams <= MOST_STREAMS:
        raise BindError(f"streams must be a number from 1 to {MOST_STREAMS}, got {streams!r}.")


def update_rule(optimizer: Any) -> UpdateRule | None:
    """The rule of an optimizer for updates inside the step, or None for no optimizer."""
    if optimizer is None or isinstance(optimizer, UpdateRule):
        return optimizer
    if not hasattr(optimizer, "update_rule"):
        raise BindError(
            f"optimizer must be an Optimizer such as mx.optimizer.SGD(momentum=0.9), got {optimizer!r}."
        )
    rule = optimizer.update_rule()
    if rule is None:
        raise BindError(
            f"{type(optimizer).__name__} has no update that can be part of the step; bind without optimizer=."
        )
    assert isinstance(rule, UpdateRule)
    return rule


Offload = int | str | HostLink | None
"""None: no host memory. "auto": as much as helps. Bytes, or text such as "4GiB": at most so many. A HostLink
also gives the speed of copies."""


def host_link(offload: Offload) -> HostLink | None:
    """The planner's form of `offload`. Raises BindError or BudgetError."""
    if offload is None or isinstance(offload, HostLink):
        return offload
    if isinstance(offload, str) and offload == "auto":
        return HostLink()
    if isinstance(offload, bool) or not (isinstance(offload, str) or hasattr(offload, "__index__")):
        raise BindError(f"offload must be 'auto', bytes, a HostLink or None, got {offload!r}.")
    try:
        return HostLink(capacity=parse_bytes(offload, "host memory of offload"))
    except BudgetError as error:
        raise BudgetError(f"{error} offload='auto' takes as much as helps.") from None
