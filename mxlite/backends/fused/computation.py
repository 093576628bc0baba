"""Operators that replace several others: what these compute, steps on elements and reductions, in one node.

    conv -> bn -> add -> relu                          conv -> bn -> [add, relu]
    x -> square -> mean -> add, rsqrt -> r;  x * r     x -> [square, mean, add, rsqrt, mul]

The passes `chains` and `reductions` of `passes/fusion/` insert them into a step, after differentiation; no
user and no file ever sees them. So they have no gradient, and live here rather than among `mxlite.ops`. As
members declare their computations, so the whole is one: its reference is `te.evaluate`, and backends make
loop nests of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from ...core.cached import cached_property
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...te.computation import Computation, LEAVES, Node, pruned, REDUCTIONS, Tensor
from ...te.evaluate import Evaluation
from ...te.inclusion import included
from ...te.operator import computed_type, domain_of


@dataclass(frozen=True)
class ComputationAttrs:
    """`nodes` are those of a Computation that reads arg0, arg1, ...; `outputs` the number of each result's
    node, `shapes` and `made` their shapes and types, `given` the types of the inputs. `in_place`: outputs may
    lie over inputs.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    shapes: Shapes
    made: tuple[DType, ...]
    given: tuple[DType, ...]
    in_place: bool = True

    @property
    def reduces(self) -> bool:
        """True if there is more than steps on elements."""
        return any(node[0] in REDUCTIONS for node in self.nodes)

    @cached_property
    def donors(self) -> tuple[tuple[str, ...], ...]:
        """For each output the inputs that it may overwrite: those that have the whole domain, as it has."""
        views = {node[1]: prod(node[2]) for node in self.nodes if node[0] == "input"}
        whole = max((*views.values(), *map(prod, self.shapes)))
        sizes = {n: self.given[int(n[3:])].itemsize for n, size in views.items() if size == whole}
        return tuple(
            tuple(n for n, size in sizes.items() if size == dtype.itemsize)
            if self.in_place and prod(shape) == whole
            else ()
            for shape, dtype in zip(self.shapes, self.made)
        )

    def written(self, t: Computation) -> dict[str, Tensor]:
        """The outputs by name, as tensors of `t`."""
        made = included(t, self.nodes, t.input)
        return {f"output{i}": made[number] for i, number in enumerate(self.outputs)}

    def on_tiles(self, inputs: Shapes, outputs: Shapes) -> ComputationAttrs:
        """The same steps on parts of the arrays, which are read as they are."""
        nodes = (("input", n[1], inputs[int(n[1][3:])]) if n[0] == "input" else n for n in self.nodes)
        return replace(self, nodes=tuple(nodes), shapes=outputs)

    def part(
        self, which: Sequence[int], from_others: bool = False
    ) -> tuple[ComputationAttrs, tuple[int, ...]]:
        """The computation of some of the outputs, and what its inputs are: inputs of this one, or the number
        of its inputs and the index of an output. `from_others`: it reads other outputs where it can.
        """
        t = Computation()
        results = list(self.written(t).values())
        roots = [results[i].number for i in which]
        for i, (x, shape) in enumerate(zip(results, self.shapes if from_others else ())):
            # An array in which the tensor is spread has axes that what follows from the tensor lacks.
            if x.number not in roots and t.nodes[x.number][0] not in LEAVES and prod(x.shape) == prod(shape):
                t.nodes[x.number] = ("input", f"made{i}", x.shape)
        nodes, numbers = pruned(t, roots)
        names = dict.fromkeys(node[1] for node in nodes if node[0] == "input")
        count, types = len(self.given), (*self.given, *self.made)
        places = [int(n[4:]) + count if n.startswith("made") else int(n[3:]) for n in names]
        new = {n: f"arg{i}" for i, n in enumerate(names)}
        attrs = ComputationAttrs(
            tuple((n[0], new[n[1]], n[2]) if n[0] == "input" else n for n in nodes),
            numbers,
            tuple(self.shapes[i] for i in which),
            tuple(self.made[i] for i in which),
            tuple(types[i] for i in places),
            self.in_place,
        )
        return attrs, tuple(places)


class FusedComputation(Op):
    """Several operators in one.

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
        return a.written(t)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, a.shapes

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return a.given, a.made

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return _flops(a)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _evaluation(a, repr(a.nodes)).nbytes

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> None:
        made = {f"output{i}": x for i, x in enumerate(outs)}
        given = {f"arg{i}": x for i, x in enumerate(args)}
        if any(x is not None for x in outs):
            _evaluation(a, repr(a.nodes)).run(xp, given, made, work)


class FusedComputationGradient(FusedComputation):
    """The same as a gradient operator: never recomputed."""

    op_name = "_fused_computation_gradient"
    recomputable = False
    cheap = False


FUSED = (FusedComputation, FusedComputationGradient)


@lru_cache(maxsize=1024)
def _evaluation(a: ComputationAttrs, spelled: str) -> Evaluation:
    """`spelled` are the nodes as text: 0.0 and -0.0 are equal, but not the same constant."""
    t = Computation()
    made = a.written(t)
    names = FusedComputation.output_names(a)
    domains = {n: domain_of(made[n], s) for n, s in zip(names, a.shapes)}
    dtypes = dict(zip((*FusedComputation.input_names(a), *names), (*a.given, *a.made)))
    dtype = computed_type(a.made[0], (*a.given, *a.made))
    donors = {n: frozenset(d) for n, d in FusedComputation.in_place_options(a).items()}
    return Evaluation(t, made, domains, dtype, dtypes, donors)


@lru_cache(maxsize=1024)
def _flops(a: ComputationAttrs) -> int:
    t = Computation()
    a.written(t)
    return sum(
        prod(t.shapes[node[1]]) if node[0] in REDUCTIONS else prod(shape)
        for node, shape in zip(t.nodes, t.shapes)
        if node[0] not in LEAVES
    )
