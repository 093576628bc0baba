"""Normalization on the GPU, run on the CPU: shapes that are split over blocks, digits that are kept."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.gpu.handwritten.channels import split, split_at_once
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.kernels.norm import batch_norm
from mxlite.backends.gpu.runtime.device import Arguments, pointer
from mxlite.graph.attrs import parse_attrs
from tests.backends.gpu.gpu_case import agree, numpy_type
from tests.conformance.case import Case, constant, positive
from tests.conformance.conformance import Call, kernels_of, same_bits, stages
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

LAST, FIRST = (3, 31, 29, 24), (24, 2, 60, 48)


def norm_act(data, axis, narrow=False, **attrs):
    channel = (data[axis],)
    shapes = [data, *[channel] * 4, *([data] if attrs.get("plus") else [])]
    attrs = {"fix_gamma": False, "axis": axis} | attrs
    wide = dict.fromkeys(ops.BatchNorm.inputs[1:], "float32") if narrow else {}
    return Case(ops.NormAct, attrs, shapes, make={"moving_var": positive}, dtypes=wide)


@pytest.mark.parametrize(
    "data, axis, dtype", [(LAST, 3, "float32"), (LAST, 3, "bfloat16"), (FIRST, 1, "float32")]
)
def test_channels_that_several_blocks_share(data, axis, dtype):
    """Also with a sum, without a rectifier and with a leaky one: the same kernels told otherwise."""
    i, c, p = (int(np.prod(x)) for x in (data[:axis], data[axis], data[axis + 1 :]))
    pack = 4 if dtype == "float32" else 8
    assert split_at_once((i, c, p), pack) is None and split((i, c, p), pack, 1024, 8).num_parts > 1
    agree(norm_act(data, axis, narrow=dtype == "bfloat16"), dtype)
    agree(norm_act(data, axis, narrow=dtype == "bfloat16", slope=0.25), dtype)
    if dtype == "float32":
        agree(norm_act(data, axis, plus="array"), dtype)
        agree(norm_act(data, axis, relu=False, use_global_stats=True), dtype)
        agree(norm_act(data, axis, plus="array", slope=0.1), dtype)


@pytest.mark.parametrize("data, axis", [(LAST, 3), (FIRST, 1), ((64, 8), 1)])
def test_digits_where_the_mean_is_large(data, axis):
    """Numbers about 3000 apart from 0 and 1 from each other: E[x^2] - E[x]^2 would have no digit left."""
    case = norm_act(data, axis, relu=False)
    x = np.random.default_rng(0).standard_normal(data) + 3000
    x.reshape(-1)[0] = 0.0  # nor may all depend on the first number
    case.make["data"] = constant(x.astype(np.float32))  # type: ignore[index]
    (forward, backward) = agree(case, "float32", 2e-4)
    assert np.isfinite(forward["out"]).all() and np.isfinite(backward["d_data"]).all()


def results(case, dtype, multiprocessors=2, skip=0):
    """All outputs of a row; arrays begin `skip` elements behind an aligned address."""
    device = EmulatedDevice()
    device.multiprocessors = multiprocessors
    backend = Backend("emulated", np, table(device))
    call = Call.of(case, dtype=dtype)
    found = []

    def shifted(x):
        room = np.empty(x.size + skip, x.dtype)[skip:].reshape(x.shape)
        room[...] = x
        return room

    with kernels_of(backend):
        for op, inputs in stages(call, case.inputs(dtype=dtype)):
            layout = call.layout()
            ins = {n: shifted(x) for n, x in inputs.items()}
            outs = {n: shifted(np.empty(*layout[n])) for n in op.output_names(call.attrs)}
            run, _ = call.bind(op, ins, outs, 0xFF)
            run()
            found.append(outs | {n: ins[n] for n in op.mutated(call.attrs)})
    return found


@pytest.mark.parametrize(
    "case",
    [norm_act(LAST, 3), Case(ops.LayerNorm, {}, [(300, 200), (200,), (200,)])],
    ids=["norm-act", "layer-norm"],
)
def test_bits_depend_on_nothing_but_the_shape(case):
    """Not on the device's size, nor on where arrays begin."""
    want = results(case, "float32")
    for how in (dict(multiprocessors=1), dict(skip=1)):
        for got, wanted in zip(results(case, "float32", **how), want):
            for name in wanted:
                same_bits(got[name], wanted[name], f"{name} {how}")


@pytest.mark.parametrize(
    "data, dtype",
    [((600, 200), "float32"), ((9, 768), "bfloat16"), ((3, 5000), "float32")],
)
def test_layer_norm_of_rows_of_every_length(data, dtype):
    """Rows in the registers of a warp, of several, in none; rows that several blocks share; odd ones."""
    agree(Case(ops.LayerNorm, {}, [data, data[-1:], data[-1:]]), dtype)


def test_group_norm_over_parts_of_a_sample():
    agree(Case(ops.GroupNorm, {"num_groups": 2}, [(5, 6, 9, 8), (2,), (2,)]), "float32")


def test_rows_keep_digits_where_the_mean_is_large():
    case = Case(ops.LayerNorm, {}, [(5, 200), (200,), (200,)])
    case.make["data"] = lambda rng, shape: rng.standard_normal(shape) + 3000  # type: ignore[index]
    agree(case, "float32", 2e-4)


@pytest.mark.parametrize("dtype", ["float32"])
def test_empty_batches(dtype):
    kind = numpy_type(dtype)
    for got in results(norm_act((0, 3, 2, 4), 3, narrow=dtype == "bfloat16"), dtype):
        assert all(x.size == 0 or np.isfinite(x.astype(np.float32)).all() for x in got.values())
        assert got.get("out", np.empty(0, kind)).dtype == kind


@pytest.mark.parametrize("parts", [1, 31, 128, 150, 1000])
def test_statistics_of_any_number_of_parts_are_those_of_all_numbers(parts):
    """A thread has several parts, the last of them fewer numbers than the others, or none."""
    device, rng = EmulatedDevice(), np.random.default_rng(parts)
    each, c = 3, 5
    rows = each * parts - (parts > 1)
    x = (rng.standard_normal((rows, c)) + 7).astype("f")
    split_up = [x[i : i + each].astype("d") for i in range(0, rows, each)]
    means = np.stack([part.mean(0) for part in split_up]).astype("f")
    squares = np.stack([((part - part.mean(0)) ** 2).sum(0) for part in split_up]).astype("f")
    mean, inverse = np.empty(c, "f"), np.empty(c, "f")
    function = device.function(batch_norm.source("float32", True, 1, True, False), "statistics")
    values = [pointer(device.address(a)) for a in (means, squares)]
    values += [ctypes.c_int64(n) for n in (rows, c, 1, each, 1, 1, parts)] + [ctypes.c_double(1e-3)]
    values += [pointer(device.address(a)) for a in (mean, inverse)]
    device.launch(function, (1, 1, 1), (32, batch_norm.ROWS, 1), 0, Arguments(values))()
    np.testing.assert_allclose(mean, x.mean(0, dtype="d"), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(0, dtype="d") + 1e-3), rtol=1e-5)


@pytest.mark.parametrize("data", [(32, 1200000), (32, 300001)])
def test_so_many_channels_that_a_grid_has_no_room_are_shared_out_otherwise(data):
    device, attrs = EmulatedDevice(), parse_attrs(ops.BatchNorm, {})
    kernels = batch_norm.Kernels(device, attrs, data, "float32")
    shape = (data[0], data[1], 1)
    assert split_at_once(shape, kernels.pack).channels > batch_norm.MOST_BLOCKS
    assert kernels.at_once is None and kernels.fits
