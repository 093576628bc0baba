"""Comparisons of arrays. Both sides may be NDArrays, numpy arrays or numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import RangeError
from ..ndarray import NDArray, waitall
from .tolerances import get_atol, get_etol, get_rtol, get_tols, Tolerance


def _host(value: Any) -> np.ndarray:
    return value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)


def same(a: Any, b: Any) -> bool:
    """True if shapes and all elements are equal."""
    return np.array_equal(_host(a), _host(b))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """True if two NDArrays share memory: a change of one shows in the other. Both are restored."""
    before = array1.asnumpy()
    array1[:] = array1 + 1
    shared = same(array1, array2)
    array1[:] = before
    return shared and same(array1, array2)


def almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """True if |a - b| <= atol + rtol * |b| everywhere; by default with the tolerances of float64."""
    a, b = _host(a), _host(b)
    if not use_broadcast:
        _check_shapes(a, b)
    return bool(np.allclose(a, b, rtol=get_rtol(rtol), atol=get_atol(atol), equal_nan=equal_nan))


def _check_shapes(a: np.ndarray, b: np.ndarray) -> None:
    if a.shape != b.shape:
        raise AssertionError(f"The shapes {a.shape} and {b.shape} are not equal.")


def find_max_violation(a: Any, b: Any, rtol: float, atol: float) -> tuple[tuple[int, ...], float]:
    """The index at which |a - b| / (atol + rtol * |b|) is largest, and that number."""
    a, b = np.broadcast_arrays(_host(a), _host(b))
    a, b = (v.astype(np.float64) for v in (a, b))
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0, np.abs(a - b))
        violation = np.nan_to_num(difference / (atol + rtol * np.abs(b) + 1e-20), nan=np.inf)
    where = np.unravel_index(int(np.argmax(violation)), violation.shape)
    return tuple(int(i) for i in where), float(violation[where])


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """AssertionError, with the worst places, unless `|a - b| <= atol + rtol * |b|` everywhere.

    Tolerances that are not given are those of the less precise dtype. `mismatches`: the most positions that
    are named; the second number is not used.
    """
    relative, absolute = get_tols(a, b, rtol, atol)
    x, y = _host(a), _host(b)
    if not use_broadcast:
        _check_shapes(x, y)
    x, y = (v.astype(np.float64) if v.dtype.kind not in "biufc" else v for v in (x, y))  # bfloat16
    if np.allclose(x, y, rtol=relative, atol=absolute, equal_nan=equal_nan):
        return
    raise AssertionError(_report(x, y, relative, absolute, names, equal_nan, mismatches[0]))


def _report(
    a: np.ndarray, b: np.ndarray, rtol: float, atol: float, names: tuple[str, str], equal_nan: bool, most: int
) -> str:
    a, b = np.broadcast_arrays(a, b)
    wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    with np.errstate(invalid="ignore"):
        error = np.abs(a.astype(np.float64) - b) / (atol + rtol * np.abs(b.astype(np.float64)) + 1e-20)
    error = np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0).ravel()
    count = int(wrong.sum())
    lines = [
        f"{names[0]} and {names[1]} differ in {count} of {wrong.size} elements "
        f"({100 * count / max(wrong.size, 1):.2f} %) by more than rtol={rtol:g}, atol={atol:g}. The worst:"
    ]
    for flat in np.argsort(-error, kind="stable")[: min(most, count)]:
        place = tuple(int(i) for i in np.unravel_index(flat, wrong.shape))
        lines.append(
            f"  {place}: {names[0]}={a[place]:.8g}, {names[1]}={b[place]:.8g}, {error[flat]:.3g} too much"
        )
    return "\n".join(lines)


def assert_allclose(a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    """`assert_almost_equal` with numpy's tolerances."""
    assert_almost_equal(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    etol: float | None = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """`assert_almost_equal`, but a share of `etol` of the elements may differ."""
    allowed = get_etol(etol)
    relative, absolute = get_tols(a, b, rtol, atol)
    x, y = _host(a), _host(b)
    share = float(np.mean(~np.isclose(x, y, rtol=relative, atol=absolute, equal_nan=equal_nan)))
    if share > allowed:
        raise AssertionError(_report(x, y, relative, absolute, names, equal_nan, mismatches[0]))


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None, names: tuple[str, str] = ("a", "b")
) -> None:
    """`assert_almost_equal` where neither side is nan."""
    x, y = _host(a).copy(), _host(b).copy()
    nan = np.isnan(x) | np.isnan(y)
    x[nan] = 0
    y[nan] = 0
    assert_almost_equal(x, y, rtol, atol, names)


def assert_exception(
    f: Callable[..., Any], exception_type: type[BaseException], *args: Any, **kwargs: Any
) -> None:
    """AssertionError unless f(*args, **kwargs) raises that exception."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} raised no {exception_type.__name__}.")


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Decorator of a random test, which then fails only if it fails `n` times in a row."""
    if n < 1:
        raise RangeError(f"A test is tried at least once, got {n}.")

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(test)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            for left in reversed(range(n)):
                try:
                    test(*args, **kwargs)
                    return
                except AssertionError:
                    if not left:
                        raise
                    waitall()

        return wrapper

    return decorate
