"""The graph that an import builds: calls of mxlite's operators, evaluated at once if all inputs are known.

An operator whose inputs are all constants is run while importing, so that an exporter's computations of
shapes (Shape, Gather, Concat, ...) end as numbers. Any other becomes a node. Shape and type of each value
are inferred by the operators' own rules when the node is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from ...core import DTypeError, FormatError, ShapeError
from ...graph import Entry, Shape
from ...ops import TABLE
from ...symbol import operator_function, Symbol, Variable
from ...symbol.compose import call, parameter_text, typed_attrs
from .call import computed, evaluate, inferred, parameters_given
from .errors import NotSupportedError
from .types import is_float, running_type
from .value import GraphValue

LARGEST_FOLDED = 1 << 22
"""The most elements of an array computed while importing; anything larger is a node."""

LARGEST_GROWN = 1 << 12
"""The most elements to which a constant may grow by being computed: `expand` to a batch stays a node."""

MOST_NODES = 200_000
"""The most nodes of one import: loops are unrolled, and a number in the file must not decide on memory."""

_EXACT = 2**53  # floats represent whole numbers up to here exactly
_SCALAR = {
    "add": "_plus_scalar", "sub": "_minus_scalar", "mul": "_mul_scalar", "div": "_div_scalar",
    "power": "_power_scalar", "maximum": "_maximum_scalar", "minimum": "_minimum_scalar",
    "greater": "_greater_scalar", "greater_equal": "_greater_equal_scalar", "lesser": "_lesser_scalar",
    "lesser_equal": "_lesser_equal_scalar", "equal": "_equal_scalar", "not_equal": "_not_equal_scalar",
}  # fmt: skip
_REVERSED = {
    "add": "_plus_scalar", "sub": "_rminus_scalar", "mul": "_mul_scalar", "div": "_rdiv_scalar",
    "power": "_rpower_scalar", "maximum": "_maximum_scalar", "minimum": "_minimum_scalar",
    "greater": "_lesser_scalar", "greater_equal": "_lesser_equal_scalar", "lesser": "_greater_scalar",
    "lesser_equal": "_greater_equal_scalar", "equal": "_equal_scalar", "not_equal": "_not_equal_scalar",
}  # fmt: skip
_SAME_SHAPE = {"add": "elemwise_add", "sub": "elemwise_sub", "mul": "elemwise_mul", "div": "elemwise_div"}
_WHOLE_SCALARS = frozenset("add sub mul maximum minimum".split())


class Builder:
    """Builds nodes and holds the arrays of variables."""

    def __init__(self, label: str) -> None:
        self.arrays: dict[str, np.ndarray] = {}  # variable -> its value, if known
        self.label = self._label = label  # new nodes are named after the node being converted
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}
        self._variables: dict[int, tuple[GraphValue, Entry]] = {}  # constants that became variables, by id
        self._values: dict[Entry, GraphValue] = {}
        self._nodes = 0

    # -- values ------------------------------------------------------------------------------------

    def constant(self, array: Any, dtype: Any = None, name: str | None = None) -> GraphValue:
        """A value that is known now; `name` is that of the variable it becomes where a node reads it."""
        array = np.asarray(array, dtype)
        return GraphValue(self, array.shape, array.dtype, array, None, name)

    def ints(self, values: Iterable[int]) -> GraphValue:
        return self.constant(list(values), np.int64)

    def full(self, shape: Shape, number: Any, dtype: Any) -> GraphValue:
        """An array of one number; a node if it is large."""
        dtype = np.dtype(dtype)
        if prod(shape) <= LARGEST_GROWN:
            with np.errstate(all="ignore"):
                return self.constant(np.full(shape, number, dtype))
        running_type(dtype, "a constant")
        return self.op("_full", shape=shape, value=float(number), dtype=str(dtype))

    def variable(
        self, name: str, shape: Shape, dtype: Any, array: np.ndarray | None = None, **settings: Any
    ) -> GraphValue:
        """A free input of the graph: data, or a parameter whose value is `array`."""
        running_type(dtype, f"{name!r}")
        name = self.unique(name)
        if array is not None:
            self.arrays[name] = array
            settings |= {"shape": shape} if 0 not in shape else {}
        symbol = Variable(name, dtype=dtype, **settings)
        return self._kept(GraphValue(self, shape, dtype, None, symbol.entries[0]))

    def _kept(self, value: GraphValue) -> GraphValue:
        assert value.entry is not None
        self._values[value.entry] = value
        return value

    def value_of(self, entry: Entry) -> GraphValue:
        """The value that an entry of this graph holds; of a constant that became a variable, the constant."""
        return self._values[entry]

    def output(self, value: GraphValue, name: str) -> Symbol:
        """A value as an output of a graph: through its own node if it is a variable or a constant."""
        self.label = name
        entry = self.entry(value)
        symbol = Symbol((entry,))
        return (
            operator_function("identity")(symbol, name=self.unique(name)) if entry.node.op is None else symbol
        )

    def result(self, value: GraphValue, name: str) -> Symbol:
        """`output` of a network that is trained: a number without axes is its loss."""
        symbol = self.output(value, name)
        if value.shape == () and is_float(value.dtype):
            symbol = operator_function("MakeLoss")(symbol, name=self.unique(f"{name}_loss"))
        return symbol

    def unique(self, name: str) -> str:
        """`name`, with a number appended if it is taken."""
        name = name or self._label
        if name not in self._names:
            self._names.add(name)
            return name
        count = self._counts.get(name, 0)
        while (candidate := f"{name}_{count}") in self._names:
            count += 1
        self._counts[name] = count + 1
        self._names.add(candidate)
        return candidate

    def entry(self, value: GraphValue) -> Entry:
        """The graph entry of `value`; a constant becomes a variable that optimizers leave alone."""
        if value.entry is not None:
            return value.entry
        assert value.array is not None
        kept = self._variables.get(id(value.array))
        if kept is None:
            variable = self.variable(
                value.name or f"{self.label}_const",
                value.shape,
                value.dtype,
                value.array,
                lr_mult=0.0,
                wd_mult=0.0,
            )
            assert variable.entry is not None
            kept = self._variables[id(value.array)] = (value, variable.entry)  # the value keeps its id taken
            self._values[variable.entry] = value
        return kept[1]

    def numbers(self, value: GraphValue, what: str) -> np.ndarray:
        """The elements of a value that must be known while importing.

        A value that depends on constants, parameters and inputs of known value is computed here.
        Raises NotSupportedError, naming what it depends on, for any other.
        """
        if value.array is not None:
            return value.array
        assert value.entry is not None
        symbol = Symbol((value.entry,))
        inputs = symbol.list_inputs()
        open_inputs = [n for n in inputs if n not in self.arrays]
        if open_inputs:
            raise NotSupportedError(
                f"{what} must be known when the model is imported, but it depends on {open_inputs[:4]}"
            )
        if value.size > LARGEST_FOLDED:
            raise NotSupportedError(f"{what} has {value.size} elements, too many to compute while importing")
        if value.entry.node.op is None:
            value.array = self.arrays[value.entry.node.name]
        else:
            value.array = evaluate(symbol, self.arrays)[0]
        return value.array

    # -- operators ---------------------------------------------------------------------------------

    def op(self, name: str, *inputs: GraphValue, **parameters: Any) -> GraphValue:
        """The output of one call of a mxlite operator, the only visible one."""
        (result,) = self.ops(name, *inputs, **parameters)
        return result

    def ops(self, name: str, *inputs: GraphValue, **parameters: Any) -> tuple[GraphValue, ...]:
        """The visible outputs of one call of a mxlite operator."""
        op = TABLE.get(name)
        if op is None:
            raise NotSupportedError(f"mxlite has no operator {name}")
        for value in inputs:
            running_type(value.dtype, "an input")
        given = {k: parameter_text(v) for k, v in parameters.items() if v is not None}
        if op.variadic:
            given["num_args"] = str(len(inputs))
        attrs = typed_attrs(op, given, name)
        try:
            shapes, dtypes = inferred(op, attrs, inputs)
        except DTypeError as error:
            raise NotSupportedError(f"{name} {error}") from None
        except ShapeError as error:
            raise FormatError(f"{name}: {error}") from None
        visible = op.num_visible_outputs(attrs)
        shapes, dtypes = shapes[:visible], dtypes[:visible]
        if (
            inputs
            and not op.random
            and all(v.array is not None for v in inputs)
            and sum(map(prod, shapes))
            <= min(LARGEST_FOLDED, max(LARGEST_GROWN, 4 * sum(v.size for v in inputs)))
        ):
            return tuple(self.constant(a) for a in computed(name, inputs, parameters))
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise FormatError(f"The model unrolls to more than {MOST_NODES} nodes.")
        entries = [self.entry(v) for v in inputs]
        node = call(op, name, entries, {}, parameters_given(parameters), self._name())
        return tuple(
            self._kept(GraphValue(self, s, d, None, Entry(node, i)))
            for i, (s, d) in enumerate(zip(shapes, dtypes))
        )

    def _name(self) -> str:
        return self.unique(self.label)

    # -- common operations of converters -----------------------------------------------------------

    def binary(self, kind: str, left: GraphValue, right: Any) -> GraphValue:
        """`left` kind `right`, broadcasting: add, sub, mul, div, power, maximum, minimum and comparisons."""
        if not isinstance(right, GraphValue):
            return self.op(_SCALAR[kind], left, scalar=float(right))
        if left.dtype != right.dtype:
            raise FormatError(f"both sides must have one type, got {left.dtype} and {right.dtype}.")
        number = _number(kind, right, left)
        if number is not None:
            return self.op(_SCALAR[kind], left, scalar=number)
        number = _number(kind, left, right)
        if number is not None:
            return self.op(_REVERSED[kind], right, scalar=number)
        if left.shape == right.shape and kind in _SAME_SHAPE:
            return self.op(_SAME_SHAPE[kind], left, right)
        return self.op(f"broadcast_{kind}", left, right)

    def reverse(self, kind: str, right: GraphValue, left: float) -> GraphValue:
        """`binary` with a Python number on the left side."""
        return self.op(_REVERSED[kind], right, scalar=float(left))

    def compare(self, kind: str, left: GraphValue, right: Any) -> GraphValue:
        """A comparison, as bool; MXNet's give the operands' type."""
        if left.dtype == np.bool_:
            left, right = (self.cast(v, np.uint8) if isinstance(v, GraphValue) else v for v in (left, right))
        return self.cast(self.binary(kind, left, right), np.bool_)

    def cast(self, value: GraphValue, dtype: Any) -> GraphValue:
        dtype = np.dtype(dtype)
        if dtype == value.dtype:
            return value
        if value.array is not None:
            with np.errstate(all="ignore"):
                return self.constant(value.array.astype(dtype))
        running_type(dtype, "the result")
        return self.op("Cast", value, dtype=str(dtype))

    def reshape(self, value: GraphValue, shape: Iterable[int]) -> GraphValue:
        """The value with exactly this shape, 0-d and empty ones too."""
        shape = tuple(int(d) for d in shape)
        if shape == value.shape:
            return value
        if prod(shape) != value.size or any(d < 0 for d in shape):
            raise FormatError(f"{value.size} elements of shape {value.shape} do not fit shape {shape}.")
        if value.array is not None:
            return self.constant(value.array.reshape(shape))
        return self.op("_reshape_to", value, shape=shape)

    def expand(self, value: GraphValue, shape: Shape) -> GraphValue:
        """The value broadcast to `shape`, which may have more axes."""
        if value.shape == shape:
            return value
        value = self.reshape(value, (1,) * (len(shape) - value.rank) + value.shape)
        if value.shape == shape:
            return value
        if value.array is not None and prod(shape) <= LARGEST_GROWN:
            return self.constant(np.broadcast_to(value.array, shape))
        return self.op("broadcast_to", value, shape=shape)

    def where(self, condition: GraphValue, x: GraphValue, y: GraphValue) -> GraphValue:
        """`x` where the condition holds, else `y`, all three broadcasting."""
        shape = broadcast_shapes(condition.shape, x.shape, y.shape)
        return self.op("where", *(self.expand(v, shape) for v in (condition, x, y)))

    def transpose(self, value: GraphValue, axes: Iterable[int]) -> GraphValue:
        axes = tuple(axes)
        if axes == tuple(range(value.rank)):
            return value
        return self.op("transpose", value, axes=axes)

    def slice(self, value: GraphValue, axis: int, begin: int, end: int, step: int = 1) -> GraphValue:
        """Elements [begin, end) of one axis; both in range."""
        axis %= value.rank
        if (begin, end, step) == (0, value.shape[axis], 1):
            return value
        if value.array is not None:
            return self.constant(value.array[(slice(None),) * axis + (slice(begin, end, step),)])
        open_axes = ("None",) * axis
        if step == 1 and begin < end:
            return self.op("slice_axis", value, axis=axis, begin=begin, end=end)
        return self.op(
            "slice",
            value,
            begin=f"({','.join((*open_axes, str(begin)))},)",
            end=f"({','.join((*open_axes, str(end)))},)",
            step=f"({','.join((*open_axes, str(step)))},)",
        )

    def split(self, value: GraphValue, sizes: list[int], axis: int) -> list[GraphValue]:
        """Parts of the given lengths along one axis; the lengths add up to its own."""
        if len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0]:
            return list(self.ops("SliceChannel", value, num_outputs=len(sizes), axis=axis))
        ends = np.cumsum(sizes).tolist()
        return [self.slice(value, axis, end - size, end) for end, size in zip(ends, sizes)]

    def concat(self, values: list[GraphValue], axis: int) -> GraphValue:
        values = [v for v in values if v.shape[axis]] or values[:1]
        if len(values) == 1:
            return values[0]
        if all(v.array is not None for v in values):
            return self.constant(np.concatenate([v.array for v in values], axis))
        return self.op("Concat", *values, dim=axis)

    def reduce(
        self, kind: str, value: GraphValue, axes: Iterable[int] | None, keepdims: bool = True
    ) -> GraphValue:
        """sum, mean, max, min or prod over `axes` (None: all), with the shape ONNX wants."""
        rank = value.rank
        chosen = tuple(range(rank)) if axes is None else tuple(sorted({self.axis(i, rank) for i in axes}))
        kept = tuple(1 if i in chosen else d for i, d in enumerate(value.shape))
        shape = kept if keepdims else tuple(d for i, d in enumerate(value.shape) if i not in chosen)
        if not chosen:
            return value
        if keepdims and len(chosen) < rank:
            return self.op(kind, value, axis=chosen, keepdims=True)
        return self.reshape(self.op(kind, value, axis=chosen, keepdims=keepdims), shape)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front. Raises FormatError if there is no such axis."""
        if not -rank <= axis < max(rank, 1):
            raise FormatError(f"axis {axis} is not one of {rank} axes.")
        return int(axis) % max(rank, 1)

    def matmul(self, left: GraphValue, right: GraphValue) -> GraphValue:
        """numpy's matmul: matrices in the last two axes, broadcasting over the others."""
        if not left.rank or not right.rank:
            raise FormatError(f"a matrix product needs axes, got {left.shape} and {right.shape}.")
        vectors = left.rank == 1, right.rank == 1
        left = self.reshape(left, (1, *left.shape)) if vectors[0] else left
        right = self.reshape(right, (*right.shape, 1)) if vectors[1] else right
        if left.shape[-1] != right.shape[-2]:
            raise FormatError(f"{left.shape} and {right.shape} do not fit a matrix product.")
        out = self._matmul(left, right)
        shape = out.shape[:-1] if vectors[1] else out.shape
        if vectors[0]:
            shape = (*shape[: -2 if not vectors[1] else -1], *shape[len(shape) if vectors[1] else -1 :])
        return self.reshape(out, shape)

    def _matmul(self, left: GraphValue, right: GraphValue) -> GraphValue:
        swapped = False
        if left.rank == 2 or right.rank > 2:  # dot would transpose more axes of `left` than two
            left, swapped = self._untransposed(left)
        right, turned = self._untransposed(right)
        if right.rank > 2:
            batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
            left, right = (self.expand(v, (*batch, *v.shape[-2:])) for v in (left, right))
        name = "dot" if right.rank == 2 else "batch_dot"
        return self.op(name, left, right, transpose_a=swapped, transpose_b=turned)

    def _untransposed(self, value: GraphValue) -> tuple[GraphValue, bool]:
        """The matrices of which these are transposes, and True; a product reads them as they lie."""
        node = value.entry and value.entry.node
        swapped = (*range(value.rank - 2), value.rank - 1, value.rank - 2)
        if node and node.op is TABLE["transpose"] and node.attrs.axes == swapped:
            return self.value_of(node.inputs[0]), True
        return value, False


def broadcast_shapes(*shapes: Shape) -> Shape:
    """numpy's rule. Raises FormatError where it does not hold."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise FormatError(f"shapes {', '.join(map(str, shapes))} do not broadcast.") from None


def _number(kind: str, scalar: GraphValue, other: GraphValue) -> float | None:
    """The one number in a constant, if the operator with a scalar computes the same."""
    if scalar.array is None or scalar.size != 1 or scalar.rank > other.rank or other.array is not None:
        return None
    if is_float(scalar.dtype):
        return float(scalar.array.reshape(()))
    if scalar.dtype.kind in "iu" and kind in _WHOLE_SCALARS:
        number = int(scalar.array.reshape(()))
        return float(number) if abs(number) < _EXACT else None
    return None
