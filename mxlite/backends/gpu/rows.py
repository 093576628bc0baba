"""Rows of the GPU's table: how they answer a request, and tables with gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

from ...graph.opdef import Op, Signature
from ..base import ChosenKernel, connected, Request
from .compiler.kinds import floating
from .runtime.device import Device, nothing, Run

MOST = 2**31 - 1  # elements that kernels count in 32 bits


def answer(
    r: Request,
    connect: Callable[..., Run],
    nbytes: int,
    name: str,
    *,
    mutates: bool = False,
    checks: bool = False,
    **facts: Any,
) -> ChosenKernel:
    """The kernel for a request, with `nbytes` of scratch; see `connected` for the `facts`.

    `connect(a, <inputs>, *, <outputs>, <services>)` is called if an output is wanted, which has elements
    unless the kernel `checks` its inputs, or if the operator changes its inputs (`mutates`). It gets the
    services of the operator's own reference that it names, and `work` if there is scratch.
    """
    signature = r.op.signature
    services = frozenset(n for n in signature.services if _takes(connect, n))
    signature = replace(signature, services=services | {"work"} if nbytes else services)

    def linked(xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
        if not mutates and not any(_is_wanted(rest[n], checks) for n in signature.makes):
            return nothing
        return connect(a, *inputs, **rest)

    found = connected(linked, nbytes, name, like=r.op.forward, mutates=mutates, **facts)
    return replace(found, signature=signature)


def _takes(connect: Callable[..., Run], service: str) -> bool:
    """True if a function, or the one that a partial calls, has this keyword parameter."""
    while isinstance(connect, partial):
        connect = connect.func
    told = getattr(connect, "signature", None)
    if isinstance(told, Signature):
        return service in told.services
    code = getattr(connect, "__func__", connect).__code__
    begin = code.co_argcount
    return service in code.co_varnames[begin : begin + code.co_kwonlyargcount]


def _is_wanted(output: Any, empty: bool) -> bool:
    """True if an output, or one of a group of them, is there, and has elements unless it may be empty."""
    if isinstance(output, tuple):
        return any(_is_wanted(x, empty) for x in output)
    return output is not None and (empty or output.size > 0)


def gradient_of(op: type[Op]) -> type[Op]:
    """The operator's gradient, which is an operator too."""
    assert op.grad_op is not None, op
    return op.grad_op


Row = Callable[[Device, Request], ChosenKernel | None]
"""The kernel for a request, or None if there is none for it."""

Make = Callable[[Device, Request], Any]
"""Makes the data that the calls of a request need, when its kernel is chosen; None if there is no kernel."""


class At(NamedTuple):
    """A request, and the device that it is for."""

    device: Device
    r: Request


def where(fits: Callable[[Request], bool]) -> Make:
    """A `Make` for calls that need nothing but the request, if that fits."""
    return lambda device, r: At(device, r) if fits(r) else None


def row(
    make: Make, name: str, nbytes: Callable[[Any], int] = lambda made: 0, **facts: Any
) -> Callable[[Callable[..., Run]], Row]:
    """A row whose calls are what the decorated function returns: its first argument is what `make` has made,
    the others are as in `answer`. `nbytes`: scratch for what was made. In `name`, {op} stands for the
    operator's name, or that of the operator whose gradient it is.
    """

    def decorated(connect: Callable[..., Run]) -> Row:
        def answered(device: Device, r: Request) -> ChosenKernel | None:
            made = make(device, r)
            if made is None:
                return None
            called = name.format(op=(r.op.forward_op or r.op).op_name)
            return answer(r, partial(connect, made), nbytes(made), called, **facts)

        return answered

    return decorated


def table(*listed: tuple[Any, Row, Row | None]) -> Callable[[Device], dict[type[Op], list[Any]]]:
    """A module's part of the backend's table, as a function of the device: (operator, its row, that of its
    gradient or None).
    """

    def rows(device: Device) -> dict[type[Op], list[Any]]:
        found: dict[type[Op], list[Any]] = {}
        for op, forward, backward in listed:
            found.setdefault(op, []).append(partial(forward, device))
            if backward is not None:
                found.setdefault(gradient_of(op), []).append(partial(backward, device))
        return found

    return rows


def first_kernel(
    rows: Callable[[Device], Mapping[type[Op], Sequence[Any]]], device: Device, r: Request
) -> ChosenKernel | None:
    """The kernel that a module's `rows` have for a request; None if there is none."""
    return next((found for row in rows(device)[r.op] if (found := row(r)) is not None), None)


def are_few(r: Request) -> bool:
    """True if the elements of every array can be counted in 32 bits."""
    return all(prod(s) <= MOST for s in (*r.inputs, *r.outputs))


def are_alike(r: Request) -> bool:
    """True if all inputs have one floating type, and elements can be counted as in `are_few`."""
    return are_few(r) and floating(*r.dtypes) and len(set(r.dtypes)) == 1
