"""A classifier with its cross-entropy in chunks of rows: the numbers of both apart, without all scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import bind_call
from mxlite.backends.cpu import passes, products
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused import tile_sizes
from mxlite.backends.fused.tile_sizes import score_tiles
from mxlite.backends.fused.tiled import Tiled, TiledGradient, TiledUpdate
from mxlite.backends.passes.tiling.chunked_cross_entropy import loss_region, LossMatch
from mxlite.backends.rewrite import Step
from mxlite.graph import Entry, Graph, NoAttrs, Node
from mxlite.memplan import check
from mxlite.ops.elementwise.cast import Cast
from mxlite.ops.elementwise.unary import Copy
from mxlite.ops.loss.wide_losses import WideSoftmaxCrossEntropy
from mxlite.ops.nn.dense import FullyConnected
from mxlite.ops.scratch import accumulator
from tests.backends.cpu.fast_kernels import KINDS, only
from tests.backends.passes.pass_lists import alone, as_pass, left_out

ROWS, WIDTH, CLASSES = 182, 24, 40
CHUNK = 16
NAMES = ("out", "d_data", "d_weight", "d_bias")


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Chunks of 16 rows."""
    monkeypatch.setattr(tile_sizes, "SCORE_BYTES", 1)
    monkeypatch.setattr(tile_sizes, "LEAST_SCORE_ROWS", CHUNK)


# -- the region -------------------------------------------------------------------------------------


def given(dtype="float32", label="float32", no_bias=False, rows=ROWS):
    """Arrays of one call, in the order data, weight, bias, label, d_out."""
    rng = np.random.default_rng(0)
    shapes = (rows, WIDTH), (CLASSES, WIDTH), (CLASSES,)
    data, weight, bias = (rng.standard_normal(s).astype(dtype) for s in shapes)
    labels = rng.integers(0, CLASSES, rows).astype(label)
    head = np.array([0.25], "float64" if dtype == "float64" else "float32")
    return [data, weight, *([] if no_bias else [bias]), labels, head]


def apart(arrays, rounded=None):
    """out and gradients in float64, all scores at once; they and their gradient are rounded to a type."""

    def stored(x):
        return x if rounded is None else x.astype(rounded).astype(np.float64)

    data, weight, *bias, label, head = (np.asarray(x, np.float64) for x in arrays)
    scores = stored(data @ weight.T + (bias[0] if bias else 0))
    top = scores.max(1, keepdims=True)
    powers = np.exp(scores - top)
    label = np.trunc(label).astype(int)
    known = (label >= 0) & (label < CLASSES)
    rows = np.flatnonzero(known)
    losses = (np.log(powers.sum(1)) + top[:, 0])[rows] - scores[rows, label[rows]]
    d = powers / powers.sum(1, keepdims=True)
    d[rows, label[rows]] -= 1
    d = stored(d * head[0] * known[:, None])
    return {
        "out": losses.sum(keepdims=True),
        "d_data": d @ weight,
        "d_weight": d.T @ data,
        "d_bias": d.sum(0),
    }


def region_of(arrays, wanted, gradients=True, update=None, **how):
    """The region of a classifier and its loss for these arrays by name, as a node; the names of its inputs
    and outputs. `update` is a step's operator and attributes.
    """
    named = {n: Entry(Node(None, None, (), n)) for n in arrays}
    shapes, dtypes = ({named[n]: f(x) for n, x in arrays.items()} for f in (np.shape, lambda x: x.dtype))

    def node(op, attrs, inputs, name, made, forward=None):
        new = Node(op, attrs, tuple(inputs), name, forward=forward)
        for i, (shape, dtype) in enumerate(made):
            shapes[Entry(new, i)], dtypes[Entry(new, i)] = shape, dtype
        return new

    data, weight = arrays["data"], named["weight"]
    dtype, wide = data.dtype, accumulator(data.dtype)
    if dtypes[weight] != dtype:
        cast = Cast.Attrs(dtype=dtype.name)
        weight = Entry(node(Cast, cast, [weight], "copy", [(shapes[weight], dtype)]))
    bias = [named["bias"]] if "bias" in named else []
    layer, scores = FullyConnected.Attrs(CLASSES, no_bias=not bias), (len(data), CLASSES)
    dense = node(FullyConnected, layer, [named["data"], weight, *bias], "score", [(scores, dtype)])
    op = WideSoftmaxCrossEntropy
    loss = node(op, NoAttrs(), [Entry(dense), named["label"]], "loss", [((1,), wide)])
    ins = [named["head"], *loss.inputs]
    by_loss = node(op.grad_op, NoAttrs(), ins, "loss_backward", [(scores, dtype)], loss)
    made = [(shapes[named[n]], dtypes[named[n]]) for n in ("data", "weight", "bias") if n in named]
    ins = [Entry(by_loss), named["data"], weight]
    by_dense = node(FullyConnected.grad_op, layer, ins, "score_backward", made, dense)
    match = LossMatch(loss, dense)
    if gradients:
        if update is not None:
            ins = [named["weight"], Entry(by_dense, 1), named["state"], named["hyper"]]
            update = node(*update, ins, "update", [])
        match = LossMatch(loss, dense, (by_loss, by_dense), named["head"], update=update)
    kept = {f"d_{n}": Entry(by_dense, i) for i, n in enumerate(("data", "weight", "bias"))}
    kept = {n: e for n, e in kept.items() if n in wanted}
    graph = Graph((Entry(loss), *kept.values()), shapes=shapes, dtypes=dtypes)
    region, results = loss_region(Step.of(graph, kept.values(), 2), match, **how)
    op = Tiled if not gradients else TiledGradient if update is None else TiledUpdate
    new = Node(op, region.attrs([*results.values()]), tuple(region.entries), "loss")
    made = {Entry(loss): "out"} | {e: n for n, e in kept.items()}
    return new, [e.node.name for e in region.entries], [made[e] for e in results]


def run_named(arrays, kinds, wanted, in_place=False, **how):
    """Outputs of a region for arrays by name; those made in NaN, in scratch of exactly the bytes that were
    asked for.
    """
    node, ins, names = region_of(arrays, wanted, **how)
    op, attrs, args = node.op, node.attrs, [arrays[n] for n in ins]
    shapes, types = tuple(a.shape for a in args), tuple(a.dtype for a in args)
    (_, made), (_, makes) = op.infer_shape(attrs, *shapes), op.infer_type(attrs, *types)
    outs = {n: np.full(s, np.nan, d) if n in wanted else None for n, s, d in zip(names, made, makes)}
    with only(kinds):
        kernel = CPU.choose(op, attrs, shapes, made, types[0], types)
    if in_place:
        options = kernel.in_place_options(op, attrs)
        assert f"arg{ins.index('data')}" in options[f"output{names.index('d_data')}"]
        outs["d_data"] = arrays["data"]
    block = np.full(64 + kernel.workspace + 64, 0xFF, np.uint8)
    block = block[-block.ctypes.data % 64 :]
    changed = {ins[int(n.removeprefix("arg"))] for n in op.mutated(attrs)} | ({"data"} if in_place else set())
    before = {n: x.tobytes() for n, x in arrays.items() if n not in changed}
    call = bind_call(
        kernel,
        np,
        op,
        attrs,
        args,
        list(outs.values()),
        work=block[: kernel.workspace],
        shapes=(shapes, made),
    )
    with CPU.running(CPU.threads()):
        call()
    assert (block[kernel.workspace :] == 0xFF).all()
    assert {n: arrays[n].tobytes() for n in before} == before
    return {n: x for n, x in outs.items() if x is not None}, kernel


def by_name(arrays):
    """Copies of the arrays of `given` by their names."""
    names = ("data", "weight", *(["bias"] if len(arrays) == 5 else []), "label", "head")
    return {n: x.copy() for n, x in zip(names, arrays, strict=True)}


def run(arrays, kinds, wanted=NAMES, in_place=False, **how):
    """Outputs of a region, and its kernel."""
    return run_named(by_name(arrays), kinds, wanted, in_place, **how)


def close(got, want, tolerance=2e-5):
    for name, x in got.items():
        scale = np.abs(want[name]).max()
        np.testing.assert_allclose(x, want[name], rtol=tolerance, atol=tolerance * scale, err_msg=name)


TUNED = pytest.param(
    "onednn,compiled",
    marks=pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there"),
)


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("label", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("no_bias", [False, True])
def test_a_region_makes_what_both_operators_make(kinds, label, no_bias):
    arrays = given(label=label, no_bias=no_bias)
    got, kernel = run(arrays, kinds)
    assert "rows at a time" in kernel.name and ("reference" in kernel.name) == (kinds == "reference")
    assert len(got) == 4 - no_bias
    close(got, apart(arrays))


@pytest.mark.parametrize("kinds", ["reference", TUNED])
def test_kernels_that_cannot_add_make_the_gradient_some_rows_at_a_time(kinds, monkeypatch):
    monkeypatch.setattr(tile_sizes, "PART_ROWS", 16)
    arrays = given()
    got, kernel = run(arrays, kinds, in_parts=True)
    assert "16 rows, 16 rows at a time" in kernel.name
    close(got, apart(arrays))
    if kinds == "reference":
        assert kernel.workspace < run(arrays, kinds)[1].workspace


def test_one_array_in_two_places_is_no_region():
    """Rows of data are tiles, and the weight is whole in each."""
    square = mx.sym.var("square")
    scores = mx.sym.FullyConnected(square, square, num_hidden=ROWS, no_bias=True, name="score")
    net = mx.sym.MakeLoss(entropy(scores))
    assert not fused(
        net.memory_plan(mx.cpu(), square=(ROWS, WIDTH), label=(ROWS,), optimizer=mx.optimizer.Adam())
    )


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_16_bits_sums_are_float32(kinds, dtype, monkeypatch):
    """Scores and their gradient are rounded once; what adds up over chunks is not."""
    monkeypatch.setattr(products, "SMALL", 1)
    arrays = given(dtype)
    got, kernel = run(arrays, kinds)
    assert ("reference" in kernel.name) == (kinds == "reference")
    kinds_of = {n: x.dtype.name for n, x in got.items()}
    assert kinds_of == dict.fromkeys(NAMES, "float32") | {"d_data": dtype}
    close(got, apart(arrays), 2e-2 if dtype == "bfloat16" else 3e-3)
    again = [np.concatenate([x] * 64) if i in (0, 3) else x for i, x in enumerate(arrays)]
    many, _ = run(again, kinds)
    for name in ("out", "d_weight", "d_bias"):  # sums in 16 bits would stop growing
        np.testing.assert_allclose(many[name], 64 * got[name], rtol=1e-4, atol=1e-3 * np.abs(got[name]).max())


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("rows", [1, CHUNK, 2 * CHUNK])
def test_every_row_counts_once_however_many_bands_there_are(kinds, rows):
    arrays = given(rows=rows)
    close(run(arrays, kinds)[0], apart(arrays))


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("wanted", [NAMES[:1], NAMES[1:2], NAMES[2:3], NAMES[3:], NAMES[:2], NAMES[::2]])
def test_only_what_is_wanted_is_made(kinds, wanted):
    arrays = given()
    got, _ = run(arrays, kinds, wanted)
    assert tuple(got) == wanted
    close(got, apart(arrays))


@pytest.mark.parametrize("kinds", ["reference", TUNED])
def test_the_gradient_in_data_may_lie_where_data_does(kinds):
    arrays = given()
    got, _ = run(arrays, kinds, in_place=True)
    close(got, apart(arrays))


@pytest.mark.parametrize("kinds", ["reference", TUNED])
def test_without_gradients_only_the_loss_is_made(kinds):
    arrays = given()
    got, kernel = run(arrays, kinds, ("out",), gradients=False)
    close(got, {"out": apart(arrays)["out"]})
    if kinds != "reference":
        assert kernel.workspace <= run(arrays, kinds)[1].workspace


@pytest.mark.parametrize("kinds", ["reference", TUNED])
def test_a_label_that_is_no_class_counts_for_nothing(kinds):
    arrays = given()
    arrays[3][[0, 5, 20, 181]] = -1, CLASSES, 1e9, -7
    arrays[3][6] = -0.5  # cut to 0
    got, _ = run(arrays, kinds)
    close(got, apart(arrays))
    assert not got["d_data"][[0, 5, 20, 181]].any() and got["d_data"][6].any()


@pytest.mark.parametrize("kinds", ["reference", TUNED])
def test_scores_of_any_size_give_finite_losses(kinds):
    arrays = given()
    arrays[0] *= 1e3
    got, _ = run(arrays, kinds)
    assert all(np.isfinite(x).all() for x in got.values())
    close(got, apart(arrays), 1e-4)


def test_gradients_are_those_of_the_loss():
    arrays = given("float64", rows=CHUNK + 3)
    arrays[-1][:] = 1
    got, _ = run(arrays, "reference")
    rng = np.random.default_rng(1)
    for i, name in enumerate(NAMES[1:]):
        way = rng.standard_normal(arrays[i].shape)
        losses = []
        for step in (1e-5, -1e-5):
            moved = [x + step * way if k == i else x for k, x in enumerate(arrays)]
            losses.append(run(moved, "reference", ("out",), gradients=False)[0]["out"][0])
        slope = (losses[0] - losses[1]) / 2e-5
        np.testing.assert_allclose((got[name] * way).sum(), slope, rtol=1e-7, err_msg=name)


def test_bands_are_even_and_large_enough():
    float32 = np.dtype("f")
    for rows in (1, 100, 1120, 4096):
        for classes in (10, 10_000, 50_257):
            chunk = score_tiles(rows, classes, float32).each
            assert 1 <= chunk <= rows and (chunk % 16 == 0 or chunk == rows)


# -- the pass ---------------------------------------------------------------------------------------


@pytest.fixture
def whole(monkeypatch):
    """A function from here on which scores are made as a whole."""

    def use():
        left_out(monkeypatch, "chunked_cross_entropy")

    return use


def classifier(data, name="score", **more):
    return mx.sym.FullyConnected(data, num_hidden=CLASSES, name=name, **more)


DATA, LABEL = mx.sym.var("data"), mx.sym.var("label")


def entropy(scores, name="loss"):
    return mx.sym.softmax_cross_entropy(scores, LABEL, name=name)


def network(hidden=WIDTH, end=lambda total: mx.sym.MakeLoss(total, name="end"), **more):
    x = mx.sym.FullyConnected(DATA, num_hidden=hidden, name="first")
    x = mx.sym.Activation(x, act_type="tanh", name="tanh")
    return end(entropy(classifier(x, **more)))


SHAPES = dict(data=(ROWS, 30), label=(ROWS,))


def fused(plan):
    return [t.name for t in plan.problem.tasks if t.op in ("_tiled", "_tiled_gradient") and not t.preview]


def plan_of(net, **how):
    how = {"optimizer": mx.optimizer.SGD(momentum=0.9), **how}
    return net.memory_plan(mx.cpu(), **{**SHAPES, **how})


def trained(net, steps=3, apart=False, **how):
    """Losses of some steps, weights and states after them, and the plan."""
    how = {"optimizer": mx.optimizer.SGD(momentum=0.9, rescale_grad=1 / ROWS), **how}
    mx.random.seed(1)
    exe = net.simple_bind(mx.cpu(), **{**SHAPES, **how})
    rng = np.random.default_rng(0)
    for name, array in exe.arg_dict.items():
        shape = array.shape
        values = rng.integers(0, CLASSES, shape) if name == "label" else rng.standard_normal(shape) / 4
        array[:] = values
    losses = []
    for t in range(steps):
        rates = how["optimizer"].update_rule().rates
        hyper = [[0.1 / (t + 1), 0.01 * (i % 2), t + 1][:rates] for i in range(len(exe.updated))]
        if apart:
            exe.forward(is_train=True)
            before = {n: a.asnumpy().tobytes() for n, a in exe.arg_dict.items()}
            losses.append(exe.outputs[0].asnumpy())
            assert before == {n: a.asnumpy().tobytes() for n, a in exe.arg_dict.items()}
            exe.finish_step(hyper)
        else:
            losses.append(exe.step(hyper)[0].asnumpy())
    check(exe.memory_plan)
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    arrays = exe.arg_dict | exe.optimizer_states
    return np.array(losses), {n: a.asnumpy() for n, a in arrays.items()}, exe.memory_plan


def same_bits(one, other):
    assert one[0].tobytes() == other[0].tobytes()
    assert [n for n in one[1] if one[1][n].tobytes() != other[1][n].tobytes()] == []


def scaled(total):
    return mx.sym.MakeLoss(total * 0.5 / ROWS, name="end")


def tied():
    """The classifier's weight is the table that data is looked up in."""
    table = mx.sym.var("table_weight")
    x = mx.sym.Embedding(DATA, table, input_dim=CLASSES, output_dim=WIDTH, name="embed")
    x = mx.sym.Activation(x, act_type="tanh", name="tanh")
    return mx.sym.MakeLoss(entropy(classifier(x, weight=table)), name="end")


def beside():
    """The backward pass of another loss reads the classifier's bias."""
    bias = mx.sym.var("score_bias")
    other = classifier(DATA, "other")
    other = mx.sym.cross_entropy(other, LABEL, bias, use_weight=True, reduction="sum", name="weighed")
    return mx.sym.Group([mx.sym.MakeLoss(other), network(bias=bias)])


def noisy():
    """Behind the loss, which multiplies it, is a mask that is drawn again in the backward pass."""
    end = network()
    loss = mx.sym.BlockGrad(end.get_internals()["loss_output"])
    other = mx.sym.FullyConnected(DATA, num_hidden=WIDTH, name="other")
    other = mx.sym.broadcast_mul(other, mx.sym.Reshape(loss, shape=(1, 1)))
    return mx.sym.Group([end, mx.sym.MakeLoss(mx.sym.sum(mx.sym.Dropout(other, p=0.5)) * 0.1)])


def doubled():
    """The classifier in float64, which mixed precision leaves alone."""
    x = mx.sym.FullyConnected(DATA, num_hidden=WIDTH, name="first")
    return mx.sym.MakeLoss(entropy(classifier(mx.sym.Cast(mx.sym.tanh(x), dtype="float64"))))


NETS = {
    "usual": (network(), {}),
    "no-bias": (network(no_bias=True), {}),
    "scaled": (network(end=scaled), {}),
    "make-loss": (network(end=lambda total: mx.sym.make_loss(total, name="end")), {}),
    "grad-scale": (network(end=lambda total: mx.sym.MakeLoss(total, grad_scale=0.1, name="end")), {}),
    "tied": (tied(), dict(data=(ROWS,))),
    "adam": (network(), dict(optimizer=mx.optimizer.Adam())),
    "lamb": (network(), dict(optimizer=mx.optimizer.LAMB())),
    "frozen": (network(), dict(grad_req={"first_weight": "write", "first_bias": "write"})),
    "frozen-data": (network(), dict(grad_req={"score_weight": "write"})),
    "bias-is-read-again": (beside(), {}),
    "noise-behind": (noisy(), {}),
    "loss-scale": (doubled(), dict(amp="float16", loss_scale=8.0)),
    "two": (
        (lambda x: mx.sym.MakeLoss(entropy(classifier(x, "a"), "one") + entropy(classifier(x, "b"), "two")))(
            mx.sym.tanh(classifier(DATA, "first"))
        ),
        dict(data=(2 * ROWS, 30), label=(2 * ROWS,)),
    ),
}


@pytest.mark.parametrize("net, how", NETS.values(), ids=NETS)
def test_training_goes_as_with_all_scores_in_fewer_bytes(whole, net, how):
    in_bands = trained(net, **how)
    tasks = in_bands[2].problem.tasks
    assert fused(in_bands[2]) == (["one", "two"] if how.get("data") == (2 * ROWS, 30) else ["loss"])
    assert len({t.name for t in tasks}) == len(tasks)
    whole()
    before = trained(net, **how)
    assert not fused(before[2])
    np.testing.assert_allclose(in_bands[0], before[0], rtol=1e-5)
    for name, x in before[1].items():
        np.testing.assert_allclose(in_bands[1][name], x, rtol=1e-4, atol=2e-6, err_msg=name)
    assert in_bands[2].peak_bytes < before[2].peak_bytes


@pytest.mark.skipif(not usable(), reason="llvmlite is not there")
@pytest.mark.parametrize("no_bias", [False, True])
def test_mixed_precision_goes_as_with_all_scores(whole, no_bias):
    net = network(no_bias=no_bias)
    in_bands = trained(net, amp="bfloat16")
    names = [t.name for t in in_bands[2].problem.tasks]
    assert fused(in_bands[2]) == ["loss"]
    assert not any(n.startswith("score_weight") and "backward" in n for n in names), "nothing is widened"
    first = min(i for i, n in enumerate(names) if n.startswith("first_b") and "backward" in n)
    assert in_bands[2].problem.num_forward <= names.index("score_weight_update") < first
    whole()
    before = trained(net, amp="bfloat16")
    assert not fused(before[2])
    np.testing.assert_allclose(in_bands[0], before[0], rtol=1e-3)
    for name, x in before[1].items():
        np.testing.assert_allclose(in_bands[1][name], x, rtol=0, atol=1e-2 * np.abs(x).max(), err_msg=name)


def test_no_array_of_the_plan_has_all_scores():
    problem = plan_of(network()).problem
    assert not any(t.recomputable for t in problem.tasks if t.name == "loss")
    assert all(v.nbytes < 4 * ROWS * CLASSES for v in problem.values if not v.fixed)


def test_forward_alone_changes_no_weight_and_the_rest_of_the_step_gives_the_same_bits():
    same_bits(trained(network()), trained(network(), apart=True))


@pytest.mark.parametrize("net, how", [NETS["usual"], NETS["tied"]], ids=["usual", "tied"])
def test_a_step_within_a_budget_gives_the_same_bits(net, how):
    free = trained(net, **how)
    with pytest.raises(mx.MemoryBudgetError) as refused:
        plan_of(net, memory_budget=1, **how)
    least = refused.value.least_feasible_bytes
    assert least < free[2].peak_bytes
    tight = trained(net, memory_budget=least, **how)
    assert tight[2].peak_bytes <= least and fused(tight[2])
    same_bits(free, tight)


def test_updates_come_first_in_the_backward_pass_and_free_their_gradients():
    plan = plan_of(network())
    names = [t.name for t in plan.problem.tasks]
    assert names.index("score_weight_update") < min(i for i, n in enumerate(names) if n.startswith("first_b"))
    assert names.index("score_weight_update") >= plan.problem.num_forward


WHOLE = {
    "gradients are arrays": (network(), dict(optimizer=None)),
    "head gradient is the user's": (network(end=lambda total: total), {}),
    "gradient depends on the loss": (network(end=lambda t: mx.sym.MakeLoss(mx.sym.log(t))), {}),
    "gradient is made with a constant": (
        network(end=lambda t: mx.sym.MakeLoss(mx.sym.where(mx.sym.ones((1,)), t, mx.sym.zeros((1,))))),
        {},
    ),
    "gradient is made with a mask": (network(end=lambda t: mx.sym.MakeLoss(mx.sym.Dropout(t))), {}),
    "scores are an output": (
        (lambda s: mx.sym.Group([entropy(s), s]))(classifier(DATA)),
        dict(optimizer=None, grad_req="null"),
    ),
    "scores are shown": (
        (lambda s: mx.sym.Group([mx.sym.MakeLoss(entropy(s)), mx.sym.BlockGrad(s)]))(classifier(DATA)),
        {},
    ),
    "scores have another reader": (
        (lambda s: mx.sym.MakeLoss(entropy(s) + mx.sym.sum(s)))(classifier(DATA)),
        {},
    ),
    "one chunk": (network(), dict(data=(CHUNK, 30), label=(CHUNK,))),
    "the weight is larger than scores": (network(hidden=ROWS), {}),
    "16 bits, too few rows": (network(hidden=ROWS // 2), dict(amp="bfloat16")),
    "all in 16 bits": (
        network(),
        dict(optimizer=mx.optimizer.SGD(multi_precision=True), type_dict={"data": "bfloat16"}),
    ),
    "probabilities": (mx.sym.SoftmaxOutput(classifier(DATA), mx.sym.var("label")), {}),
}


@pytest.mark.parametrize(("net", "how"), WHOLE.values(), ids=WHOLE)
def test_scores_are_made_as_a_whole_where(net, how):
    assert not fused(plan_of(net, **how))


def test_what_others_read_is_made(monkeypatch):
    """Scores and their gradient, read behind the gradients, and gradients that are kept."""
    found = {}

    def look(step):
        graph, kept = step.graph, step.kept
        by_loss = [n for n in graph.nodes if n.name == "loss_backward"]
        for gradient in by_loss:
            (by_dense,) = [n for n in graph.nodes if n.name == "score_backward"]
            for e in (gradient.inputs[1], Entry(gradient), Entry(by_dense, 1)):
                copy = Node(Copy, NoAttrs(), (e,), "copy")
                shapes, dtypes = ({**x, Entry(copy): x[e]} for x in (graph.shapes, graph.dtypes))
                read = replace(graph, order=(*graph.nodes, copy), shapes=shapes, dtypes=dtypes)
                found[e.node.name, e.index] = [
                    any(n.op is TiledGradient for n in made(g, k, step.num_forward).nodes)
                    for g, k in ((graph, kept), (read, kept), (graph, kept | {e}))
                ]
        return step

    def made(graph, kept, num_forward):
        return alone("chunked_cross_entropy", graph, kept, num_forward).graph

    monkeypatch.setattr(passes, "PASSES", (as_pass(look),))
    plan_of(network())
    assert found == {
        ("score", 0): [True, False, False],
        ("loss_backward", 0): [True, False, False],
        ("score_backward", 1): [True, True, False],
    }


def test_a_loss_without_gradient_is_made_in_bands_too():
    data = classifier(DATA, "first")
    aside = mx.sym.BlockGrad(entropy(classifier(mx.sym.tanh(data)), "aside"))
    end = mx.sym.LinearRegressionOutput(data, mx.sym.var("target"), name="end")
    assert fused(plan_of(mx.sym.Group([end, aside]))) == ["aside"]


@pytest.mark.parametrize("kinds", ["reference", *KINDS])
def test_inference_gives_the_loss_in_bands(whole, kinds):
    net, found = network(), []
    for _ in range(2):
        with only(kinds):
            exe = net.simple_bind(mx.cpu(), grad_req="null", **SHAPES)
            rng = np.random.default_rng(0)
            for name, array in exe.arg_dict.items():
                shape = array.shape
                array[:] = rng.integers(0, CLASSES, shape) if name == "label" else rng.standard_normal(shape)
            found.append((exe.forward()[0].asnumpy(), exe.memory_plan))
        whole()
    assert [bool(fused(plan)) for _, plan in found] == [True, False]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    assert found[0][1].peak_bytes < found[1][1].peak_bytes


@pytest.mark.parametrize(
    "name, options",
    {
        "lstm": dict(layers=1, dropout=0.0),
        "gpt2": dict(layers=1, width=16, heads=2, length=20),
        "transformer": dict(layers=1, width=16, heads=2, length=20, source_length=4),
    }.items(),
)
def test_language_models_may_end_in_their_loss(name, options):
    options |= dict(hidden=16, vocabulary=CLASSES)
    shapes, peaks = mx.models.shapes_of(name, 4, **options), []
    for loss in ("softmax", "cross_entropy"):
        net = mx.models.get(name, loss=loss, **options)
        arguments = net.list_arguments()
        with only("reference"):
            plan = net.memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), **shapes)
        peaks.append(plan.peak_bytes)
    assert arguments == mx.models.get(name, **options).list_arguments()
    assert net.infer_shape(**shapes)[1] == [(1,)]
    assert fused(plan) == ["softmax_entropy"]
    assert peaks[1] < peaks[0]
    with pytest.raises(mx.OpAttributeError, match="softmax, cross_entropy"):
        mx.models.get(name, loss="mse")
