"""Comparison of two optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import ArgumentError
from ..ndarray import NDArray, random
from .comparison import assert_almost_equal
from .random_arrays import rand_ndarray
from .tolerances import default_context

Shape = tuple[int, ...]


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """AssertionError where two arrays, or nested tuples of arrays, differ; None on either side is equal to
    all.
    """
    if t1 is None or t2 is None:
        return
    if isinstance(t1, (tuple, list)):
        assert len(t1) == len(t2), f"{len(t1)} states and {len(t2)}"
        for a, b in zip(t1, t2):
            compare_ndarray_tuple(a, b, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol=rtol, atol=atol)


def _pair(shape: Shape, dtype: Any, stype: str, density: float | None) -> tuple[NDArray, NDArray]:
    """The same numbers twice: dense, and with storage type `stype`."""
    if stype == "default":
        second = random.uniform(shape=shape, ctx=default_context(), dtype=dtype)
        return second.copyto(default_context()), second
    if stype not in ("row_sparse", "csr"):
        raise ArgumentError(f"a storage type is 'default', 'row_sparse' or 'csr', got {stype!r}.")
    second = rand_ndarray(shape, stype, density=density, dtype=dtype)
    return second.copyto(default_context()).tostype("default"), second


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shape: Shape | Sequence[Shape],
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """One update of the same random weight by two optimizers gives the same weight and, unless
    `compare_states` is False, the same states; AssertionError where not.

    opt1 gets dense arrays, opt2 those of the storage types. A list of `ntensors` shapes: opt1 updates one
    weight after the other, opt2 all of them in one call.
    """
    if not isinstance(shape, list):
        w1, w2 = _pair(tuple(shape), dtype, w_stype, 1)  # type: ignore[arg-type]
        g1, g2 = _pair(tuple(shape), dtype, g_stype, None)  # type: ignore[arg-type]
        state1, state2 = (o.create_state_multi_precision(0, w) for o, w in ((opt1, w1), (opt2, w2)))
        if compare_states:
            compare_ndarray_tuple(state1, state2)
        opt1.update_multi_precision(0, w1, g1, state1)
        opt2.update_multi_precision(0, w2, g2, state2)
        if compare_states:
            compare_ndarray_tuple(state1, state2, rtol, atol)
        assert_almost_equal(w1, w2, rtol=rtol, atol=atol)
        return
    weights = [_pair(s, dtype, "default", None) for s in shape]
    grads = [_pair(s, dtype, "default", None) for s in shape]
    states = [opt2.create_state_multi_precision(0, w) for _, w in weights]
    opt2.update_multi_precision(list(range(ntensors)), [w for _, w in weights], [g for _, g in grads], states)
    for i in range(ntensors):
        state = opt1.create_state_multi_precision(i, weights[i][0])
        opt1.update_multi_precision(i, weights[i][0], grads[i][0], state)
        if compare_states:
            compare_ndarray_tuple(state, states[i], rtol, atol)
        assert_almost_equal(*weights[i], rtol=rtol, atol=atol)
