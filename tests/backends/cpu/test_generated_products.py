"""Matrix products of generated code: types and layouts against float64, bits of any number of threads."""

from dataclasses import astuple, replace

import ml_dtypes
import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import products
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled.matrix import product as generated, schedule as schedules
from mxlite.backends.cpu.compiled.matrix.schedule import MatricesForm, MatricesSchedule, MatricesTask
from mxlite.backends.cpu.onednn.product import Layout
from mxlite.backends.cpu.products import Term
from mxlite.core.machine_code import native
from mxlite.ops.nn.dense import FullyConnected

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not installed")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {
    "float32": (np.dtype("float32"), 2e-6),
    "bfloat16": (BFLOAT16, 5e-3),
    "float16": (np.dtype("float16"), 6e-4),
}
SIZES = [
    (1, 40, 3),
    (15, 33, 1),
    (33, 70, 19),
    (17, 3, 1030),
    (3, schedules.COLUMNS + 40, 64),
    (2 * schedules.ROWS + 21, 45, 2 * schedules.DEPTH + 7),
]
TURNS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.fixture
def threads():
    """Sets the number of threads, and brings the old one back."""
    before = mx.get_num_threads()
    yield mx.set_num_threads
    mx.set_num_threads(before)


def laid(values, dtype, turn):
    """`values` as an array of `dtype`, column by column if `turn`; and its layout."""
    if turn:
        return np.ascontiguousarray(values.T).astype(dtype), Layout.dense(*values.T.shape, dtype=dtype).turned
    return values.astype(dtype), Layout.dense(*values.shape, dtype=dtype)


def multiplied(x, y, turns, dtype, bias=None, onto=None, turn_out=False, schedule=None):
    """x @ y by the generated kernel, with guard bytes behind the scratch and nan where nothing is yet."""
    (a, left), (b, right) = laid(x, dtype, turns[0]), laid(y, dtype, turns[1])
    shape = (x.shape[0], y.shape[1])
    side = Layout.dense(*shape[::-1], dtype=dtype).turned if turn_out else Layout.dense(*shape, dtype=dtype)
    out = np.full(shape[::-1] if turn_out else shape, np.nan, dtype) if onto is None else onto.astype(dtype)
    kind = None if bias is None else bias.dtype
    made = generated.product(left, right, side, kind, onto is not None, schedule=schedule)
    assert made is not None and made.name == "compiled product"
    work = np.full(made.scratch + 128, 0xFF, np.uint8)
    skip = -work.__array_interface__["data"][0] % 64
    inside = work[skip : skip + made.scratch]
    made.bind(a, b, out, bias, inside)()
    assert (work[skip + made.scratch :] == 0xFF).all() and (work[:skip] == 0xFF).all()
    wide = (np.asarray(z, dtype).astype(np.float64) for z in (x, y))
    return (out.T if turn_out else out), np.matmul(*wide)


def near(found, wanted, tolerance):
    return np.abs(found.astype(np.float64) - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("m, n, k", SIZES)
def test_every_type_and_layout(kind, m, n, k):
    dtype, tolerance = TYPES[kind]
    rng = np.random.default_rng(m + n + k)
    x, y, row = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal(n).astype(dtype)
    for turns in TURNS:
        found, wanted = multiplied(x, y, turns, dtype)
        assert near(found, wanted, tolerance), turns
        found, wanted = multiplied(x, y, turns, dtype, bias=row)
        assert near(found, wanted + row.astype(np.float64), tolerance), turns
    found, wanted = multiplied(x, y, (False, False), dtype, turn_out=True)
    assert near(found, wanted, tolerance)


@pytest.mark.parametrize("m, n, k", SIZES)
def test_what_is_there_is_added_to(m, n, k):
    rng = np.random.default_rng(5)
    x, y, there = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    found, wanted = multiplied(x, y, (False, True), np.dtype("float32"), onto=there)
    assert near(found, wanted + there.astype(np.float32), 2e-6)


@pytest.mark.parametrize("shape", [(300, 70, 600), (70, 700, 600)])
def test_bits_do_not_depend_on_threads(threads, shape):
    m, n, k = shape
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(multiplied(x, y, (False, True), BFLOAT16)[0].view(np.uint16))
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_layers_of_16_bits_are_generated(kind):
    """Forward and both gradients: none is left to the reference kernel."""
    dtype = TYPES[kind][0]
    a = FullyConnected.Attrs(num_hidden=160)
    shapes = ((128, 128), (160, 128), (160,)), ((128, 160),)
    for op in (FullyConnected, FullyConnected.grad_op):
        chosen = CPU.choose(op, a, *shapes, dtype, (dtype,) * 3)
        assert not chosen.is_reference and chosen.name != "reference", chosen.name


def test_what_has_no_generated_product():
    plain = Layout.dense(4, 4)
    gaps = Layout((4, 4), (16, 2))
    half = Layout.dense(4, 4, dtype=BFLOAT16)
    assert generated.product(gaps, plain, plain) is None  # rows with gaps between their numbers
    assert generated.product(half, half, half, adds=True) is None  # a sum would be rounded twice
    double = Layout.dense(4, 4, dtype=np.dtype("float64"))
    assert generated.product(double, double, double) is None


def sampled(task, count, threads=1):
    """Some of the legal schedules, at equal distances in their list."""
    found = list(schedules.legal(task, threads))
    return found[:: max(1, len(found) // count)]


@pytest.mark.parametrize("turns", [(False, False), (True, True)])
def test_legal_schedules_of_one_depth_give_the_same_bits(threads, turns):
    """A block is as deep as k here, so that no schedule changes the order of a sum."""
    threads(2)
    m, n, k = 17, 150, 100
    rng = np.random.default_rng(m + n + k)
    x, y, row = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal(n).astype("f")
    task = MatricesTask(MatricesForm(a_turned=turns[0], b_turned=turns[1], bias="float32"), m, n, k)
    wanted = None
    some = [s for s in sampled(task, 14, 2) if s.depth >= k]
    assert {s.packs_a for s in some} == {0, 1} and {s.packs_b for s in some} == ({1} if turns[1] else {0, 1})
    for s in some:
        found, exact = multiplied(x, y, turns, np.dtype("float32"), bias=row, schedule=s)
        assert near(found, exact + row, 2e-6), s
        wanted = found.copy() if wanted is None else wanted
        assert found.tobytes() == wanted.tobytes(), s


def test_blocks_in_place_and_every_loop_order():
    """Several blocks along each axis, whose last ones are not full."""
    rng = np.random.default_rng(4)
    m, n, k = 45, 230, 150
    x, y, there = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    lanes = schedules.width()
    for packs_a, packs_b, by_tiles, by_rows in np.ndindex(2, 2, 2, 2):
        s = MatricesSchedule(3, 2, 2, 64, 18, 6 * lanes, packs_a, packs_b, by_tiles, by_rows, 32 * packs_a, 5)
        assert s.allows(MatricesTask(MatricesForm(), m, n, k))
        found, wanted = multiplied(x, y, (False, False), np.dtype("float32"), onto=there, schedule=s)
        assert near(found, wanted + there.astype("f"), 2e-6), s


def test_a_schedule_is_whole_numbers():
    task = MatricesTask(MatricesForm(b="bfloat16", a_turned=True), 200, 300, 400)
    legal = list(schedules.legal(task, 2))
    assert legal[0] == schedules.default(task, 2) and len(set(legal)) == len(legal)
    for s in legal[::50]:
        assert s.allows(task) and s.packs_b and all(type(x) is int for x in astuple(s))
        assert s.vectors * (s.rows + 1) + 1 <= schedules.tile.registers()


@pytest.mark.parametrize("field, number", [("rows", 40), ("depth", 65), ("block_rows", 13), ("packs_b", 0)])
def test_what_no_schedule_allows(field, number):
    task = MatricesTask(MatricesForm(b_turned=True), 200, 300, 400)
    s = replace(schedules.default(task, 1), **{field: number})
    assert not s.allows(task)
    sides = Layout.dense(200, 400), Layout.dense(300, 400).turned, Layout.dense(200, 300)
    with pytest.raises(ValueError, match="no generated product"):
        generated.product(*sides, schedule=s)


@pytest.mark.parametrize("rows, is_generated", [(2, False), (8, True), (60, False)])
def test_few_rows_and_a_large_matrix_where_it_lies(threads, rows, is_generated):
    """No copy of the matrix is made; bits do not depend on threads."""
    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, 1024), "float32"), rng.standard_normal((1024, 1024), "float32")
    row, found = rng.standard_normal(1024, "float32"), []
    sides = Layout.dense(rows, 1024), Layout.dense(1024, 1024), Layout.dense(rows, 1024)
    turned = Term("x", "y", "out", (sides[0], sides[1].turned, sides[2]))
    assert products.product_of(np.dtype("float32"), turned).name != "compiled product"
    for count in (1, 2):
        threads(count)
        made = products.product_of(np.dtype("float32"), Term("x", "y", "out", sides, "bias"))
        assert (made.name == "compiled product") == is_generated
        assert not is_generated or made.scratch < y.nbytes // 16
        out = np.empty((rows, 1024), "float32")
        made.bind(x, y, out, row, np.empty(made.scratch, np.uint8))()
        found.append(out)
        assert near(out, x.astype(float) @ y + row, 2e-6)
    assert not is_generated or found[0].tobytes() == found[1].tobytes()
