"""Records in functions that are compiled: named tuples of integers and arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from mxlite.memplan import compiled as compiler
from mxlite.memplan.compiled import all_compiled, compiled, Fixed, interpreted, Ints, plain
from mxlite.memplan.placement import packing, stacking
from mxlite.memplan.remat import spans, stepwise


class Row(NamedTuple):
    first: int
    values: Ints
    end: int


class Pair(NamedTuple):
    values: Ints
    step: int


class Wrong(NamedTuple):
    values: list[str]


def add_up(r: Row, scale: int) -> int:
    """The sum of values[first:end] times `scale`, each of which becomes 0."""
    total = 0
    i = r.first
    while i < r.end and r.values[i].bit_length() < 60:
        total += r.values[i] * scale
        r.values[i] = 0
        i += 1
    return total


def twice(scale: int, r: Row, more: Ints) -> int:
    """The same of a record that is passed on, and of one made of parts of it."""
    total = add_up(r, scale)
    total += add_up(Row(r.first + 1, more, r.end), r.end - r.first)
    more[0] += total
    return total


def flat_add_up(first: int, values: Ints, end: int, scale: int) -> int:
    """`add_up` without a record."""
    total = 0
    i = first
    while i < end and values[i].bit_length() < 60:
        total += values[i] * scale
        values[i] = 0
        i += 1
    return total


def flat_twice(scale: int, first: int, values: Ints, end: int, more: Ints) -> int:
    """`twice` without a record."""
    total = flat_add_up(first, values, end, scale)
    total += flat_add_up(first + 1, more, end, end - first)
    more[0] += total
    return total


def store_field(r: Row) -> int:
    r.first = 1  # type: ignore[misc]
    return 0


def add_to_field(r: Row) -> int:
    r.first += 1  # type: ignore[misc]
    return 0


def store_record(r: Row) -> int:
    r = r.first  # type: ignore[assignment]
    return r  # type: ignore[return-value]


def pass_another(p: Pair) -> int:
    return add_up(p, 2)  # type: ignore[arg-type]


def make_another(p: Pair) -> int:
    return add_up(Pair(p.values, 1), 2)  # type: ignore[arg-type]


def make_short(p: Pair) -> int:
    return add_up(Row(1, p.values), 2)  # type: ignore[call-arg]


def no_such_field(r: Row) -> int:
    return r.last  # type: ignore[attr-defined]


def of_text(r: Wrong) -> int:
    return 0


def arguments():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, end = sorted(rng.integers(1, 9, 2).tolist())
        yield 3, first, rng.integers(0, 9, 10), end, rng.integers(0, 9, 10)


def ways():
    """The same loops as machine code, as plain Python on lists, and on arrays."""
    found = [interpreted(twice)]
    machine = compiled((add_up, twice))
    return found if machine is None else [machine, *found]


def test_records_are_passed_on_and_made_with_the_same_results_everywhere():
    found = ways()
    for scale, first, values, end, more in arguments():
        lists = values.tolist(), more.tolist()
        wanted = flat_twice(scale, first, lists[0], end, lists[1])
        again = values.tolist(), more.tolist()
        assert twice(scale, Row(first, again[0], end), again[1]) == wanted and again == lists
        again = values.tolist(), more.tolist()
        assert plain(twice)(scale, first, again[0], end, again[1]) == wanted and again == lists
        for way in found:
            one, other = values.copy(), more.copy()
            assert way(scale, first, one, end, Fixed(other)) == wanted
            assert (one.tolist(), other.tolist()) == lists


def test_machine_code_of_records_is_that_of_their_fields():
    pytest.importorskip("llvmlite")
    text = compiler._module((add_up, twice))
    assert text == compiler._module((flat_add_up, flat_twice)).replace("flat_", "")


def test_a_function_without_records_is_plain_already():
    assert plain(flat_twice) is flat_twice


@pytest.mark.parametrize("way", [plain(twice), interpreted(twice)])
def test_a_call_with_too_few_or_too_many_numbers_is_refused(way):
    given = 3, 1, np.arange(3), 2, np.arange(3)
    for wrong in (given[:-1], (*given, 1)):
        with pytest.raises((AssertionError, ValueError)):
            way(*wrong)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (store_field, r"r\.first = \.\.\.: records do not change"),
        (add_to_field, r"r\.first = \.\.\.: records do not change"),
        (store_record, r"r = \.\.\.: records do not change"),
        (pass_another, "p, which must be a Row"),
        (make_another, r"Pair\(p\.values, 1\), which must be a Row"),
        (make_short, r"Row\(1, p\.values\), which must be a Row"),
        (no_such_field, r"r\.last"),
        (of_text, r"of_text: r is of list\[str\], not int or Ints"),
    ],
)
def test_what_records_cannot_do_is_refused_when_it_is_compiled(function, text):
    pytest.importorskip("llvmlite")
    with pytest.raises(NotImplementedError, match=text):
        compiler._module((add_up, function))


def test_a_change_of_a_record_in_another_file_makes_other_code():
    """Code is kept by the text of its files: that of a record's class is one of them."""

    def elsewhere(p: Any) -> int:
        return 0

    elsewhere.__annotations__["p"] = "spans_row"
    elsewhere.__globals__["spans_row"] = spans.State
    try:
        assert [*compiler._files(elsewhere)] == [__file__, spans.__file__]
    finally:
        del elsewhere.__globals__["spans_row"]


@pytest.mark.parametrize("module", [packing, stacking, spans, stepwise])
def test_the_planner_s_loops_compile_and_have_few_parameters(module):
    pytest.importorskip("llvmlite")
    assert all_compiled(module.PARTS) is not None
    assert max(f.__code__.co_argcount for f in module.PARTS) <= 12
