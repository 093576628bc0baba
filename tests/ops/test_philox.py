import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mxlite import ops
from mxlite.backends.cpu.compiled import storable
from mxlite.backends.cpu.compiled.random.streams import FastStream
from mxlite.core.machine_code import native
from mxlite.ops.random.philox import CHUNK, philox4x32, RandomStream
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

WORK = np.empty(RandomStream.WORK_BYTES, np.uint8)


def stream(seed=11, step=5, number=3):
    return RandomStream(np.array([seed, step], np.uint64), number)


def bits(source, count, start=0):
    out = np.full(count, 0xAAAAAAAA, np.uint32)
    source.fill_bits(np, out, WORK, start)
    return out


@pytest.mark.parametrize(
    "counter, key, want",
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_random123(counter, key, want):
    got = philox4x32(np, counter[0], 1, counter[1:], key[0] | key[1] << 32, WORK)
    assert " ".join(f"{x:08x}" for x in got) == want


def test_counter_is_block_stream_and_step_and_key_is_the_seed():
    seed, step, number = 0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3
    got = bits(stream(seed, step, number), 4, start=4 * 0x243F6A88)
    assert [f"{x:08x}" for x in got] == ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"]


@settings(max_examples=60, deadline=None)
@given(start=st.integers(0, 9 * CHUNK), count=st.integers(0, 9 * CHUNK))
def test_any_part_of_a_stream_equals_that_part_of_the_whole(start, count):
    whole = bits(stream(), 18 * CHUNK)
    np.testing.assert_array_equal(bits(stream(), count, start), whole[start : start + count])


@pytest.mark.parametrize(
    "change", [{"seed": 12}, {"step": 6}, {"number": 4}, {"seed": 11 + 2**32}, {"step": 5 + 2**32}]
)
def test_seed_step_and_stream_each_change_the_numbers(change):
    assert (bits(stream(), 1000) != bits(stream(**change), 1000)).mean() > 0.99


def test_the_state_is_read_at_each_call():
    state = np.array([1, 0], np.uint64)
    source = RandomStream(state, 0)
    first = bits(source, 8)
    state[1] = 1
    second = bits(source, 8)
    state[1] = 0
    assert (first != second).all()
    np.testing.assert_array_equal(bits(source, 8), first)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_lie_in_the_half_open_interval_and_are_spread_evenly(dtype):
    out = np.full(200_000, np.nan, dtype)
    stream().fill_uniform(np, out, WORK)
    assert out.min() >= 0 and out.max() < 1
    counts, _ = np.histogram(out.astype(float), bins=20, range=(0, 1))
    # 20 bins, 10,000 expected in each; the statistic is above 44 once in a thousand streams.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 44


def test_uniform_numbers_are_the_upper_24_bits():
    out, wide = np.empty(10_001, np.float32), np.empty(10_001, np.float64)
    stream().fill_uniform(np, out, WORK, start=7)
    stream().fill_uniform(np, wide, WORK, start=7)
    np.testing.assert_array_equal(out, (bits(stream(), 10_001, 7) >> 8) * 2.0**-24)
    np.testing.assert_array_equal(out, wide)


def test_neighbouring_numbers_streams_and_steps_are_not_correlated():
    def uniform(start=0, **where):
        out = np.empty(100_000, np.float64)
        stream(**where).fill_uniform(np, out, WORK, start)
        return out

    base = uniform()
    for other in (uniform(start=1), uniform(number=4), uniform(step=6), uniform(seed=12)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 4 / np.sqrt(100_000)


compiled = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")


@compiled
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16, "uint32"])
@pytest.mark.parametrize("threads", [1, 3])
def test_generated_code_fills_arrays_with_the_same_bits(dtype, threads):
    if dtype == "float16" and dtype not in storable():
        return
    source = stream(seed=2**64 - 3, step=2**33 + 1)
    fast = FastStream(source.state, source.stream, threads)
    for start, count in ((0, 1), (1, 7), (2, 15), (3, 16), (5, 17), (4 * 0xFFFFFFF0 - 40, 65), (9, 40003)):
        got, want = np.zeros(count + 2, dtype), np.empty(count, dtype)
        for it, out in ((fast, got[1:-1]), (source, want)):
            fill = it.fill_bits if dtype == "uint32" else it.fill_uniform
            fill(np, out, WORK, start)
        np.testing.assert_array_equal(got[1:-1], want)
        assert got[0] == got[-1] == 0


@compiled
@pytest.mark.parametrize(
    "op, attrs, shapes",
    [
        (ops.RandomUniform, {"shape": (1003,), "low": -1.0}, []),
        (ops.RandomUniformLike, {}, [(5, 7)]),
        (ops.RandomNormal, {"shape": (1003,)}, []),
        (ops.RandomNormalLike, {}, [(5, 7)]),
        (ops.RandomRandint, {"shape": (1003,), "low": 0, "high": 10}, []),
        (ops.scaled_dot_product_attention, {"p": 0.4}, [(2, 4, 33, 6)] * 3),
    ],
)
def test_operators_draw_the_same_numbers_with_generated_code(op, attrs, shapes):
    case = Case(op, attrs, shapes)
    arrays = case.inputs(dtype="float32")
    heads = fast_kernels.heads_of(case, "float32") if op is ops.scaled_dot_product_attention else None
    with fast_kernels.only("compiled"):
        call = Call.of(case, dtype="float32")
        assert all(
            call.kernel(o).name == "compiled random numbers" for o in (op, op.grad_op if heads else op)
        )
    got = fast_kernels.run(case, "float32", "compiled", arrays, heads)
    fast_kernels.close(got, fast_kernels.run(case, "float32", "reference", arrays, heads), 0)
