"""One kernel call: with its arguments bound, as an element of a program, and as facts for tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph.opdef import Op, Shapes
from .base import ChosenKernel, Run


def bind_call(
    kernel: ChosenKernel,
    xp: Any,
    op: type[Op],
    attrs: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    work: Any = None,
    rng: Any = None,
    train: bool = False,
    shapes: tuple[Shapes, Shapes] | None = None,
    state: dict[str, Any] | None = None,
    link: Callable[..., Any] | None = None,
) -> Callable[[], None]:
    """A function of no arguments that runs `kernel` on these arrays.

    `inputs` follow `op.input_names(attrs)`, `outputs` follow `op.output_names(attrs)`; None stands for an
    array that is absent or not wanted. `shapes` are those of the forward call; `state` is the
    node's own, the same for a node and its gradient. `link` replaces the kernel's.
    """
    forward = op.forward_op or op
    have = dict(zip(op.input_names(attrs), inputs))
    ins, outs = forward.input_names(attrs), forward.output_names(attrs)

    def group(prefix: str, names: tuple[str, ...], arrays: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(arrays.get(prefix + n) for n in names)

    def pick(name: str, arrays: dict[str, Any]) -> Any:
        prefix, base = ("d_", name[2:]) if name.startswith("d_") else ("", name)
        if forward.variadic and base == forward.variadic:
            return group(prefix, ins, arrays)
        if forward.variadic_outputs and base == forward.variadic_outputs:
            return group(prefix, outs, arrays)
        return arrays.get(name)

    positional: list[Any] = []
    for name in kernel.signature.needs:
        if op is forward and name == op.variadic:
            positional += group("", ins, have)
        else:
            positional.append(pick(name, have))
    made = dict(zip(op.output_names(attrs), outputs))
    keyword = {name: pick(name, made) for name in kernel.signature.makes}
    services = {"work": work, "rng": rng, "train": train, "shapes": shapes, "state": state}
    keyword |= {name: services[name] for name in kernel.signature.services}
    return (link or kernel.link)(kernel.run, xp, attrs, *positional, **keyword)


class Calls(tuple[Run, ...]):
    """Several calls in sequence."""

    __slots__ = ()

    def __call__(self) -> None:
        for run in self:
            run()


def in_turn(calls: Sequence[Run]) -> Run:
    """The calls as one."""
    return calls[0] if len(calls) == 1 else Calls(calls)


@dataclass(frozen=True, slots=True)
class Facts:
    """One kernel call. `flops` is the operator's own count, `nbytes` that of its inputs and outputs.

    `name` is the node's, `operator` the operator's; `dtype` that of the first input.
    """

    name: str
    operator: str
    kernel: str
    dtype: str
    flops: float
    nbytes: int


def flops_of(
    op: type[Op], attrs: Any, shapes: tuple[Shapes, Shapes], wanted: Collection[str] | None = None
) -> float:
    """Arithmetic operations of a call; `shapes` are those of the forward call, also of a gradient.

    `wanted` are the outputs that are read, all unless given. The gradients of different inputs are taken as
    equally expensive, but for vectors: compared with the gradients of data and weight, that of a bias is
    free.
    """
    forward = op.forward_op
    if forward is None:
        return float(op.flops(attrs, *shapes))
    flops = float(forward.backward_flops(attrs, *shapes))
    if wanted is None:
        return flops
    rank = {f"d_{n}": len(s) for n, s in zip(forward.input_names(attrs), shapes[0])}
    large = [n in wanted for n in op.output_names(attrs) if rank.get(n, 0) > 1]
    return flops * sum(large) / len(large) if any(large) else flops
