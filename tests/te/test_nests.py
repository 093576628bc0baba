"""Loop nests as generated code: any computation gives numpy's numbers, whatever its axes, and equal bits on
any number of threads.
"""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.nests.build import nests_of
from mxlite.backends.nests.facts import NestFacts
from mxlite.te.computation import Computation
from tests.te.computations import drawn, nests, reference, run

pytestmark = pytest.mark.skipif(not usable(), reason="generated code needs llvmlite")


def _close(got, want, message):
    for name, x in want.items():
        size = max(1.0, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))
        np.testing.assert_allclose(got[name], x, rtol=1e-4, atol=2e-5 * size, err_msg=f"{message}: {name}")


@pytest.mark.parametrize("part", range(8))
def test_random_computations(part):
    for seed in range(40 * part, 40 * part + 40):
        rng = np.random.default_rng(seed)
        t, outputs, shapes = drawn(rng)
        arrays = {n: rng.uniform(-1, 1, s).astype("f") for n, s in shapes.items()}
        _close(run(nests(t, outputs, shapes), outputs, arrays), reference(t, outputs, arrays), f"seed {seed}")


@pytest.mark.parametrize("seed", range(400, 430))
def test_an_output_over_an_input_that_it_may_overwrite(seed):
    rng = np.random.default_rng(seed)
    t, outputs, shapes = drawn(rng)
    arrays = {n: rng.uniform(-1, 1, s).astype("f") for n, s in shapes.items()}
    for name, x in outputs.items():
        for donor, shape in shapes.items():
            if x.shape != shape or t.nodes[x.number][0] == "input":
                continue
            try:
                found = nests(t, outputs, shapes, {name: frozenset({donor})})
            except AssertionError:
                continue  # no order of the nests allows it
            own = {n: a.copy() for n, a in arrays.items()}
            _close(
                run(found, outputs, own, {name: donor}), reference(t, outputs, arrays), f"{name} over {donor}"
            )


def test_what_is_kept_for_the_last_sweep_does_not_lie_over_what_that_reads():
    t = Computation()
    x = t.input("x", (30, 70))
    power = t.exp(x - t.max(x, (1,)))
    outputs = {"y": power / t.sum(power, (1,)) + x}
    arrays = {"x": np.random.default_rng(4).standard_normal((30, 70)).astype("f")}
    found = nests(t, outputs, {"x": (30, 70)}, {"y": frozenset({"x"})})
    want = reference(t, outputs, arrays)
    _close(run(found, outputs, arrays, {"y": "x"}), want, "over x")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_two_outputs_over_what_the_other_reads(order, axis):
    """They come in an order that works, or there is none."""
    t = Computation()
    shapes = {"x": (30, 70), "y": ((1, 70), (30, 1))[axis]}
    x, y = (t.input(n, s) for n, s in shapes.items())
    outputs = {"a": x + y, "b": y + t.sum(x, (axis,))}
    outputs = {n: outputs[n] for n in order}
    over = {"a": "x", "b": "y"}
    rng = np.random.default_rng(5)
    arrays = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    dtypes = dict.fromkeys((*shapes, *outputs), "float32")
    donors = {n: frozenset({donor}) for n, donor in over.items()}
    found = nests_of(t, outputs, {n: v.shape for n, v in outputs.items()}, dtypes, donors)
    if found is not None:
        want = reference(t, outputs, arrays)
        _close(run(found, outputs, arrays, over), want, order)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reads_sum", [True, False])
def test_what_another_output_of_a_nest_reads_is_there_before_it_is_written_over(axis, reads_sum):
    t = Computation()
    shapes = {"x": (30, 70), "y": ((1, 70), (30, 1))[axis]}
    x, y = (t.input(n, s) for n, s in shapes.items())
    total = t.sum(x, (axis,))
    outputs = {"a": x * total + y if reads_sum else x + y, "b": total + 1.0}
    rng = np.random.default_rng(6)
    arrays = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    dtypes = dict.fromkeys((*shapes, *outputs), "float32")
    found = nests_of(t, outputs, {n: v.shape for n, v in outputs.items()}, dtypes, {"b": frozenset({"y"})})
    if found is not None:
        want = reference(t, outputs, arrays)
        _close(run(found, outputs, arrays, {"b": "y"}), want, (axis, reads_sum))


def _many(rows, columns):
    """Sums over either axis and a product of both kinds of statistics."""
    t = Computation()
    x = t.input("x", (rows, columns))
    scaled = (x - t.mean(x, (1,))) * t.rsqrt(t.mean(x * x, (1,)) + 1.0)
    return (
        t,
        {"a": t.sum(scaled, (0,)), "b": scaled * t.max(x, (1,)), "c": t.sum(x * x)},
        {"x": (rows, columns)},
    )


@pytest.mark.parametrize(
    "shape", [(3, 200_001), (200_001, 3), (700, 900), (1, 300_000), (300_000, 1)], ids=str
)
def test_bits_do_not_depend_on_the_number_of_threads(shape):
    t, outputs, shapes = _many(*shape)
    arrays = {"x": np.random.default_rng(2).standard_normal(shape).astype("f")}
    found = nests(t, outputs, shapes)
    made = []
    for count in (1, 2, 5):
        with CPU.running(count):
            made.append(run(found, outputs, arrays))
    for other in made[1:]:
        for name, x in made[0].items():
            np.testing.assert_array_equal(other[name], x, err_msg=name)
    _close(made[0], reference(t, outputs, arrays), str(shape))


def test_sums_of_many_numbers_lose_few_digits():
    """A million times 0.1: added one after the other it is off by a part in a thousand."""
    for shape, axis in (((2**20,), 0), ((2**20, 2), 0), ((2, 2**20), 1)):
        t = Computation()
        x = t.input("x", shape)
        outputs = {"y": t.sum(x, (axis,))}
        arrays = {"x": np.full(shape, 0.1, "f")}
        got = run(nests(t, outputs, {"x": shape}), outputs, arrays)["y"]
        np.testing.assert_allclose(got, np.float32(0.1).astype("f8") * 2**20, rtol=1e-5)


def test_statistics_and_what_they_scale_are_one_nest_and_both_gradients_of_a_norm_two():
    t, outputs, shapes = _many(700, 900)
    del outputs["c"], outputs["a"]
    assert len(nests(t, outputs, shapes).nests) == 1
    t, outputs, shapes = _many(700, 900)
    del outputs["c"]
    found = nests(t, outputs, shapes)
    assert len(found.nests) == 2 and found.nests[0].nest.across
    arrays = (*found.inputs, *found.outputs)
    stored = [[arrays[x.array] for _, x in placed.nest.stores] for placed in found.nests]
    assert stored == [["b"], ["a"]], "statistics that no other nest reads, and sums, are stored once or never"


def test_a_sum_is_taken_in_the_sweep_that_knows_most_of_its_terms():
    t = Computation()
    shapes = dict.fromkeys(("x", "d"), (300, 70))
    x, d = (t.input(n, s) for n, s in shapes.items())
    spread = t.sqrt(t.mean(x * x, (1,)))
    own = d * 3.0
    outputs = {"y": own * t.sum(own * x / spread, (1,)) + t.sum(own, (1,)) + t.sum(x, (1,))}
    (placed,) = nests(t, outputs, shapes).nests
    facts = NestFacts(placed.nest)
    terms = [[facts.names[facts.operands[i][0]] for i in level] for level in facts.levels]
    assert sorted(terms[0]) == ["load", "mul"], "x, with its squares"
    assert sorted(terms[1]) == ["div", "mul"], "d * 3, with its products"


@pytest.mark.parametrize("shape", [(32, 70), (33, 70), (257, 70), (43, 3, 70), (1027, 1800)], ids=str)
def test_sums_over_rows_that_are_taken_two_at_a_time(shape):
    """Every row counts once, also one that is left over, and where arrays are so large that each is alone."""
    last = len(shape) - 1
    t = Computation()
    x, d = (t.input(n, shape) for n in ("x", "d"))
    scaled = x / t.sqrt(t.mean(x * x, (last,)))
    outputs = {"y": d - scaled * t.mean(d * scaled, (last,)), "a": t.sum(d * scaled, range(last))}
    rng = np.random.default_rng(2)
    arrays = {n: rng.uniform(-1, 1, shape).astype("f") for n in ("x", "d")}
    found = nests(t, outputs, dict.fromkeys(("x", "d"), shape))
    assert found.nests[0].nest.across
    _close(run(found, outputs, arrays), reference(t, outputs, arrays), str(shape))


@pytest.mark.parametrize("shape", [(4099, 40), (65, 90, 33), (2, 5000, 70)], ids=str)
def test_sums_of_columns_of_a_large_array_are_taken_row_by_row(shape):
    """Also two of them, one that is scaled, and one that is added to an array in place."""
    axes = tuple(range(len(shape) - 1))
    t = Computation()
    shapes = {"x": shape, "d": shape, "before": shape[-1:]}
    x, d, before = (t.input(n, s) for n, s in shapes.items())
    outputs = {
        "a": t.mean(x * d, axes),
        "b": t.sum(d, axes) + t.view(before, (*(1 for _ in axes), shape[-1])),
    }
    found = nests(t, outputs, shapes, {"b": frozenset({"before"})})
    assert [bool(p.nest.across) for p in found.nests] == [True, False]
    rng = np.random.default_rng(3)
    arrays = {n: rng.uniform(-1, 1, s).astype("f") for n, s in shapes.items()}
    want = reference(t, outputs, arrays)
    arrays["before"] = arrays["before"].reshape(outputs["b"].shape)
    made = []
    for count in (1, 2, 5):
        own = {n: x.copy() for n, x in arrays.items()}
        with CPU.running(count):
            made.append(run(found, outputs, own, {"b": "before"}))
    _close(made[0], want, str(shape))
    for name in outputs:
        assert len({m[name].tobytes() for m in made}) == 1, name


def test_what_is_made_of_sums_in_parts_is_made_where_they_are_joined():
    t = Computation()
    x = t.input("x", (1000, 300))
    outputs = {"y": t.sqrt(t.mean(x * x) + 1.0), "z": t.mean(x, (0,))}
    found = nests(t, outputs, {"x": (1000, 300)})
    arrays = {"x": np.random.default_rng(6).uniform(-1, 1, (1000, 300)).astype("f")}
    _close(run(found, outputs, arrays), reference(t, outputs, arrays), "both")
    assert len(found.nests) == 4, "parts, and what joins them, of either"


def test_parts_of_unrelated_shapes_have_no_nests():
    t = Computation()
    x, y = t.input("x", (4, 3)), t.input("y", (5,))
    out = {"out": x * t.sum(y)}
    assert nests_of(t, out, {"out": (4, 3)}, dict.fromkeys(("x", "y", "out"), "float32"), {}) is None
