"""Custom: an operator whose kernels are a user's Python code.

Everything about such an operator depends on the class the user has registered and on the parameters of the
call, so `custom_operator` makes an operator class for each combination. To every pass it is an operator like
any other: its outputs and gradients are planned, its backward reads the arrays that
`declare_backward_dependency` names, the engine schedules it. Arrays that the user's code allocates itself are
outside the plan.

This package knows neither arrays nor the user's base classes. `mx.operator.register` puts an object into
`REGISTRY` that does: see `Registered`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...core.errors import DefinitionError, nearest, OpAttributeError, ShapeError, UnknownNameError
from ...core.record import record
from ...graph.attrs import attr_text
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, SERVICES, Shapes, Types, with_parameters

Parameters = tuple[tuple[str, str], ...]


@record
class Description:
    """The declaration of a registered operator with certain parameters.

    reads: names of the arrays that backward reads (an input, an output, or `d_<output>`), without states.
    needs_head: True if backward waits for the gradients of the outputs; a loss does not.
    """

    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...]
    reads: tuple[str, ...]
    needs_head: bool


@record
class KernelCall:
    """The arrays of one call, in the order of the description's names; None for absent ones."""

    name: str
    parameters: Parameters
    state: dict[str, Any]
    train: bool
    shapes: tuple[Shapes, Shapes]
    arguments: tuple[Any, ...]
    outputs: tuple[Any, ...]
    states: tuple[Any, ...]
    d_outputs: tuple[Any, ...] = ()
    d_arguments: tuple[Any, ...] = ()


class Registered(Protocol):
    """The interface of an entry of the registry."""

    def describe(self, parameters: Parameters) -> Description: ...

    def infer_shape(
        self, parameters: Parameters, shapes: Sequence[Shape]
    ) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Shapes of arguments, outputs and states from those of the arguments, () for unknown ones."""

    def infer_type(
        self, parameters: Parameters, dtypes: Sequence[DType]
    ) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """`infer_shape` for types."""

    def forward(self, call: KernelCall) -> None: ...

    def backward(self, call: KernelCall) -> None: ...


REGISTRY: dict[str, Registered] = {}
"""Registered operators by `op_type`."""


class Custom(Op):
    """An operator registered with `mx.operator.register`, by the name `op_type`.

    Inputs, outputs, shapes and kernels are those of its CustomOpProp, which gets all other parameters as
    text. Never recomputed within a step, since its code may have effects.
    """

    abstract = True
    recomputable = False

    registered: Registered
    parameters: Parameters
    described: Description


def custom_operator(given: Mapping[str, Any]) -> type[Custom]:
    """The operator for these parameters. Raises OpAttributeError, UnknownNameError, DefinitionError."""
    name = given.get("op_type")
    if not isinstance(name, str):
        raise OpAttributeError("Custom needs the parameter 'op_type', a name given to mx.operator.register.")
    if name not in REGISTRY:
        raise UnknownNameError(
            f"Custom: nothing is registered as {name!r}; see mx.operator.register.{nearest(name, REGISTRY)}"
        )
    rest = tuple(sorted((k, attr_text(v)) for k, v in given.items() if k not in ("op_type", "num_args")))
    found: Any = REGISTRY[name]
    return _operator(name, found, rest)


@functools.lru_cache(maxsize=1024)
def _operator(name: str, registered: Any, parameters: Parameters) -> type[Custom]:
    about = registered.describe(parameters)
    inputs = (*about.arguments, *about.states)
    d_outputs = tuple(f"d_{o}" for o in about.outputs)
    d_inputs = tuple(f"d_{i}" for i in inputs)
    _check_names(name, (*inputs, *about.outputs, *d_outputs), (*about.outputs, *d_inputs))
    needs = (*about.reads, *about.states)
    makes = tuple(f"d_{a}" for a in about.arguments)

    def call(state: Any, train: bool, shapes: Any, have: Mapping[str, Any]) -> KernelCall:
        def all_of(names: Sequence[str]) -> tuple[Any, ...]:
            return tuple(have.get(n) for n in names)

        arrays = map(all_of, (about.arguments, about.outputs, about.states, d_outputs, makes))
        # Inside a loop's body a node has no state: each of its calls starts with nothing.
        return KernelCall(name, parameters, {} if state is None else state, train, shapes, *arrays)

    def forward(xp, a, *ins, state, train, shapes, **outs):
        registered.forward(call(state, train, shapes, {**dict(zip(inputs, ins)), **outs}))

    def backward(xp, a, *ins, state, train, shapes, **grads):
        registered.backward(call(state, train, shapes, {**dict(zip(needs, ins)), **grads}))

    services = ("state", "train", "shapes")
    fields = [("op_type", str), *((k, str) for k, _ in parameters)]
    return type(
        "Custom",
        (Custom,),
        dict(
            __doc__=Custom.__doc__,
            __module__=__name__,
            inputs=inputs,
            outputs=about.outputs,
            aux=about.states,
            mutates=about.states,
            backward_mutates=about.states,
            inferred=inputs[1:],
            is_loss=not about.needs_head,
            Attrs=dataclasses.make_dataclass("Attrs", fields, frozen=True),
            registered=registered,
            parameters=parameters,
            described=about,
            infer_shape=staticmethod(functools.partial(_infer_shape, name, registered, parameters, about)),
            infer_type=classmethod(_infer_type),
            forward=staticmethod(with_parameters(forward, inputs, about.outputs, services)),
            backward=staticmethod(with_parameters(backward, needs, makes, services)),
        ),
    )


def _check_names(name: str, *groups: tuple[str, ...]) -> None:
    """Check that each group's names are distinct identifiers, since its arrays go into one call by name."""
    for names in groups:
        for n in names:
            if not (isinstance(n, str) and n.isidentifier()) or n in ("xp", "a", "self", *SERVICES):
                raise DefinitionError(
                    f"Custom {name!r}: {n!r} cannot name an input or output; use letters, digits and _, "
                    f"but not {', '.join(('xp', 'a', 'self', *SERVICES))}."
                )
            if names.count(n) > 1:
                raise DefinitionError(
                    f"Custom {name!r}: {n!r} names two of its inputs, outputs or gradients."
                )


def _infer_shape(
    name: str,
    registered: Registered,
    parameters: Parameters,
    about: Description,
    a: Any,
    *shapes: Shape | None,
) -> tuple[Shapes, Shapes]:
    known = shapes[: len(about.arguments)]
    unknown = [n for n, s in zip(about.arguments, known) if s is None]
    try:
        found = registered.infer_shape(parameters, [() if s is None else s for s in known])
    except ShapeError:
        raise
    except Exception as error:
        hint = f" (the shapes of {unknown} are not known)" if unknown else ""
        raise ShapeError(f"infer_shape failed with {type(error).__name__}: {error}{hint}.") from error
    parts: list[list[Shape]] = []
    for what, names, group in zip(
        ("arguments", "outputs", "auxiliary states"), (about.arguments, about.outputs, about.states), found
    ):
        if len(group) != len(names):
            raise ShapeError(f"infer_shape gave {len(group)} shapes of {what}, there are {len(names)}.")
        parts.append([tuple(int(d) for d in s) for s in group])
    for n, given, s in zip(about.arguments, known, parts[0]):
        if given is None and not s:
            raise ShapeError(f"the shape of {n!r} is not known, and infer_shape does not tell it.")
    return (*parts[0], *parts[2]), tuple(parts[1])


def _infer_type(cls: type[Custom], a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
    about = cls.described
    first = next((d for d in dtypes if d is not None), None)
    if first is None:
        return dtypes, (None,) * len(about.outputs)
    given = [first if d is None else d for d in dtypes[: len(about.arguments)]]
    ins, outs, states = cls.registered.infer_type(cls.parameters, given)
    return (*ins, *states), tuple(outs)
