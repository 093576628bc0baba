"""Operators that replace several others: a computation with reductions over axes, in one node.

    x -> square -> mean -> add, rsqrt -> r;  x * r -> y           x -> [square, mean, add, rsqrt, mul] -> y

The pass `passes/fusion/reductions.py` inserts them into a step; no user and no file ever sees them. As its
members declare their computations, so the whole is one: its reference is `te.evaluate`, and backends make
loop nests of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...te.computation import Computation, LEAVES, Node, pruned, Tensor
from ...te.evaluate import Evaluation
from ...te.inclusion import included
from ...te.operator import computed_type, domain_of


@dataclass(frozen=True)
class ComputationAttrs:
    """`nodes` are those of a Computation that reads arg0, arg1, ...; `outputs` the number of each result's
    node, `shapes` and `made` their shapes and types, `given` those of the inputs. `donors`: for each output,
    the inputs that it may overwrite.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    shapes: Shapes
    made: tuple[DType, ...]
    given: tuple[DType, ...]
    donors: tuple[tuple[str, ...], ...]

    def written(self, t: Computation, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs by name, as tensors of `t`."""
        made = included(t, self.nodes, lambda name, shape: t.view(inputs[name], shape))
        return {f"output{i}": made[number] for i, number in enumerate(self.outputs)}

    def from_others(self, which: int, inputs: Shapes) -> tuple[ComputationAttrs, tuple[int, ...]]:
        """The computation of one output that reads the others where it can, and what its inputs are: an input
        of this one, or the number of its inputs and the index of an output.
        """
        t, made = computation_of(self, inputs)
        results = list(made.values())
        root = results[which].number
        for i, (x, shape) in enumerate(zip(results, self.shapes)):
            # An array in which the tensor is spread has axes that what follows from the tensor lacks.
            if x.number != root and t.nodes[x.number][0] not in LEAVES and prod(x.shape) == prod(shape):
                t.nodes[x.number] = ("input", f"made{i}", x.shape)
        nodes, numbers = pruned(t, [root])
        names = dict.fromkeys(node[1] for node in nodes if node[0] == "input")
        count = len(inputs)
        places = [int(n[4:]) + count if n.startswith("made") else int(n[3:]) for n in names]
        new = {n: f"arg{i}" for i, n in enumerate(names)}
        types, shapes = (*self.given, *self.made), (*inputs, *self.shapes)
        own = types[count + which], shapes[count + which]
        over = tuple(f"arg{i}" for i, k in enumerate(places) if (types[k], shapes[k]) == own)
        attrs = ComputationAttrs(
            tuple((n[0], new[n[1]], n[2]) if n[0] == "input" else n for n in nodes),
            numbers,
            self.shapes[which : which + 1],
            self.made[which : which + 1],
            tuple(types[i] for i in places),
            (over if self.donors[which] else (),),  # what may lie over an array of the domain may over others
        )
        return attrs, tuple(places)


class FusedComputation(Op):
    """Several operators, among them reductions, in one.

    args: arrays  ->  output0, ...: of `shapes` and `made`. Computed in float32 whatever the types of the
    arrays (float64 if there is such an input); only stored results are rounded.
    """

    op_name = "_fused_computation"
    variadic = "args"
    variadic_outputs = "outs"
    cheap = True
    Attrs = ComputationAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(len(a.given)))

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return len(a.outputs)

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return dict(zip(cls.output_names(a), a.donors))

    @staticmethod
    def compute(t: Computation, a: Any, **inputs: Tensor) -> dict[str, Tensor]:
        return a.written(t, inputs)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, a.shapes

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return a.given, a.made

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return _flops(a, inputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _evaluation(a, inputs).nbytes

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> None:
        made = {f"output{i}": x for i, x in enumerate(outs)}
        given = {f"arg{i}": x for i, x in enumerate(args)}
        if any(x is not None for x in outs):
            _evaluation(a, tuple(x.shape for x in args)).run(xp, given, made, work)


class FusedComputationGradient(FusedComputation):
    """The same as a gradient operator: never recomputed."""

    op_name = "_fused_computation_gradient"
    recomputable = False
    cheap = False


def computation_of(a: ComputationAttrs, inputs: Shapes) -> tuple[Computation, dict[str, Tensor]]:
    """The computation, and its outputs by name."""
    t = Computation()
    return t, a.written(t, {f"arg{i}": t.input(f"arg{i}", s) for i, s in enumerate(inputs)})


@lru_cache(maxsize=1024)
def _evaluation(a: ComputationAttrs, inputs: Shapes) -> Evaluation:
    t, made = computation_of(a, inputs)
    names = FusedComputation.output_names(a)
    domains = {n: domain_of(made[n], s) for n, s in zip(names, a.shapes)}
    dtypes = dict(zip((*FusedComputation.input_names(a), *names), (*a.given, *a.made)))
    dtype = computed_type(a.given[0], (*a.given[1:], *a.made))
    donors = {n: frozenset(d) for n, d in FusedComputation.in_place_options(a).items()}
    return Evaluation(t, made, domains, dtype, dtypes, donors)


@lru_cache(maxsize=1024)
def _flops(a: ComputationAttrs, inputs: Shapes) -> int:
    t, _ = computation_of(a, inputs)
    return sum(
        prod(t.shapes[node[1]]) if node[0].startswith("reduce_") else prod(shape)
        for node, shape in zip(t.nodes, t.shapes)
        if node[0] not in LEAVES
    )
