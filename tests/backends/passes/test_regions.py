"""Regions of tiles by themselves: any nest of loops over any axes computes what one call on whole arrays
does.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from mxlite.backends.fused.tile_builder import add_update, TileBuilder
from mxlite.backends.fused.tiled import TileArray, Tiled, TiledGradient, TiledUpdate, TileLoop
from mxlite.graph import Node
from mxlite.graph.attrs import parse_attrs
from mxlite.ops import _fused_sgd_mom, find_op
from mxlite.ops.nn.dense import FullyConnected
from tests.backends.passes.regions import run_region

COUNT, ROWS, COLUMNS = 45, 37, 53
AXES = {"data": ("n", "k"), "weight": ("m", "k"), "bias": ("m",), "out": ("n", "m")}
SIZES = {"n": COUNT, "m": ROWS, "k": COLUMNS}
NESTS = [nest for count in (1, 2, 3) for nest in permutations("nmk", count)]
KINDS = ["reference", "onednn,compiled"]


def array(name: str, nest: Any, dtype: Any = "f") -> TileArray:
    """An array of a dense layer in these loops; a gradient is sliced as its array is."""
    axes = AXES[name.removeprefix("d_")]
    shape = tuple(SIZES[x] for x in axes)
    return TileArray(shape, np.dtype(dtype), tuple(axes.index(x) if x in axes else None for x in nest))


def loops(nest: Any, rng: np.random.Generator) -> tuple[TileLoop, ...]:
    """Loops of these axes in tiles of any size."""
    return tuple(TileLoop(SIZES[x], int(rng.integers(1, SIZES[x] + 1))) for x in nest)


def numbers(rng: np.random.Generator, *names: str) -> dict[str, np.ndarray]:
    """Whole numbers, whose sums are exact in any order."""
    return {n: rng.integers(-4, 5, array(n, "").shape).astype("f") for n in names}


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("nest", NESTS, ids="".join)
def test_a_layer_in_any_loops(nest, kinds):
    rng = np.random.default_rng(len(nest))
    given = numbers(rng, "data", "weight")
    for _ in range(2):
        builder = TileBuilder(loops(nest, rng))
        reads = {n: builder.add(array(n, nest)) for n in given}
        layer = FullyConnected.Attrs(ROWS, no_bias=True)
        made = builder.call(FullyConnected, layer, reads, {"out": array("out", nest)})
        node = Node(Tiled, builder.attrs([made["out"]]), (), "region")
        (out,), _ = run_region(node, list(given.values()), kinds)
        np.testing.assert_array_equal(out, given["data"] @ given["weight"].T)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("nest", NESTS, ids="".join)
def test_both_gradients_of_a_layer_behind_a_negation_in_any_loops(nest, kinds):
    """The negated data exist only a tile at a time, where that is possible."""
    rng = np.random.default_rng(len(nest))
    given = numbers(rng, "data", "d_out", "weight")
    builder = TileBuilder(loops(nest, rng))
    reads = {n: builder.add(array(n, nest)) for n in given}
    negative = find_op("negative")
    data = builder.call(negative, negative.Attrs(), {"data": reads["data"]}, {"out": array("data", nest)})
    layer = FullyConnected.Attrs(ROWS, no_bias=True)
    back, d_out = FullyConnected.grad_op, {"d_out": reads["d_out"]}
    d_weight = builder.call(back, layer, d_out | {"data": data["out"]}, {"d_weight": array("d_weight", nest)})
    d_data = builder.call(back, layer, d_out | {"weight": reads["weight"]}, {"d_data": array("d_data", nest)})
    node = Node(TiledGradient, builder.attrs([d_weight["d_weight"], d_data["d_data"]]), (), "region")
    (by_weight, by_data), _ = run_region(node, list(given.values()), kinds)
    np.testing.assert_array_equal(by_weight, -given["d_out"].T @ given["data"])
    np.testing.assert_array_equal(by_data, given["d_out"] @ given["weight"])


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("nest", NESTS, ids="".join)
def test_gradients_of_one_call_are_each_accumulated_over_their_own_loops(nest, kinds):
    rng = np.random.default_rng(len(nest))
    given = numbers(rng, "data", "d_out", "weight")
    builder = TileBuilder(loops(nest, rng))
    reads = {n: builder.add(array(n, nest)) for n in given}
    makes = {n: array(n, nest) for n in ("d_data", "d_weight")}
    made = builder.call(FullyConnected.grad_op, FullyConnected.Attrs(ROWS, no_bias=True), reads, makes)
    node = Node(TiledGradient, builder.attrs([made["d_weight"], made["d_data"]]), (), "region")
    (by_weight, by_data), _ = run_region(node, list(given.values()), kinds)
    np.testing.assert_array_equal(by_weight, given["d_out"].T @ given["data"])
    np.testing.assert_array_equal(by_data, given["d_out"] @ given["weight"])


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("nest", ["m", "k", "mn", "kn", "mk", "mkn"])
def test_an_update_behind_the_loops_of_its_gradient(nest, kinds):
    """It follows all tiles of a sum, once for each tile of the weight, and changes nothing else."""
    rng = np.random.default_rng(5)
    given = numbers(rng, "data", "d_out", "weight")
    state = rng.integers(-4, 5, given["weight"].shape).astype("f")
    hyper = np.array([[9.0, 9.0], [0.5, 0.25]])
    builder = TileBuilder(loops(nest, rng))
    reads = {n: builder.add(array(n, nest)) for n in ("d_out", "data")}
    layer = FullyConnected.Attrs(ROWS, no_bias=True)
    gradient = builder.call(FullyConnected.grad_op, layer, reads, {"d_weight": array("weight", nest)})
    own = [builder.add(array("weight", nest)) for _ in range(2)]
    own.append(builder.add(TileArray(hyper.shape, hyper.dtype, (None,) * len(nest))))
    step = parse_attrs(_fused_sgd_mom, {"momentum": 0.5, "row": 1})
    add_update(builder, _fused_sgd_mom, step, own, gradient["d_weight"], len(nest.removesuffix("n")))
    node = Node(TiledUpdate, builder.attrs([]), (), "region")
    assert TiledUpdate.mutated(node.attrs) == ("arg2", "arg3")
    arrays = [given["d_out"], given["data"], given["weight"].copy(), state.copy(), hyper]
    run_region(node, arrays, kinds)
    momentum = 0.5 * state - 0.5 * (given["d_out"].T @ given["data"] + 0.25 * given["weight"])
    np.testing.assert_array_equal(arrays[3], momentum)
    np.testing.assert_array_equal(arrays[2], given["weight"] + momentum)


def test_what_is_named_in_a_plan():
    builder = TileBuilder((TileLoop(COUNT, 20, "sample"), TileLoop(ROWS, 1, "row")))
    reads = {n: builder.add(array(n, "nm")) for n in ("data", "weight")}
    made = builder.call(FullyConnected, FullyConnected.Attrs(ROWS, True), reads, {"out": array("out", "nm")})
    node = Node(Tiled, builder.attrs([made["out"]]), (), "region")
    rng = np.random.default_rng(0)
    _, name = run_region(node, list(numbers(rng, "data", "weight").values()), "reference")
    assert name == "reference, 20 samples, 1 row at a time"
