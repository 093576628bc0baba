"""A classifier's weight updated inside of its loss: the same training in fewer bytes, in whatever calls."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import products
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.fused import tile_sizes
from mxlite.engine import use_engine
from mxlite.executor import step_order
from mxlite.executor.plan import lower
from mxlite.memplan import check, MemoryPlan
from tests.backends.cpu.fast_kernels import only
from tests.backends.passes.test_chunked_cross_entropy import (
    apart,
    beside,
    by_name,
    CLASSES,
    classifier,
    close,
    DATA,
    entropy,
    fused,
    given,
    narrow,  # noqa: F401
    NETS,
    network,
    noisy,
    plan_of,
    ROWS,
    run_named,
    same_bits,
    SHAPES,
    tied,
    trained,
    TUNED,
    WIDTH,
)

LOSSES = "loss", "one", "two"
SGD = mx.optimizer.SGD(momentum=0.9, rescale_grad=1 / ROWS)


LEAST_BYTES = tile_sizes.LEAST_UPDATE


@pytest.fixture(autouse=True)
def any_size(monkeypatch, narrow):  # noqa: F811
    """Gradients of any size are not made."""
    monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", 0)


def at_the_loss(plan):
    """The most bytes in the arena while losses and gradients are made."""
    tasks = (plan.problem.tasks[t] for t in plan.schedule.task)
    return max(live for live, t in zip(plan.live_bytes(), tasks) if t.name in LOSSES and not t.preview)


def joined(plan):
    return [t.name for t in plan.problem.tasks if t.op == "_tiled_update" and t.name in LOSSES]


# -- the region -------------------------------------------------------------------------------------


def run(arrays, kinds, momentum=0.9, wd=0.0, rescale=0.5, wanted=("out", "d_data", "d_bias"), in_place=False):
    """Outputs, weight and momentum of a region, its kernel, and the momentum before."""
    rng = np.random.default_rng(1)
    state = rng.standard_normal(arrays[1].shape).astype(arrays[1].dtype)
    op = mx.optimizer.SGD(momentum=0.9).update_rule().op
    step = op.Attrs(row=1, momentum=momentum, rescale_grad=rescale)
    named = by_name(arrays) | {"state": state.copy(), "hyper": np.array([[7, 7], [0.1, wd]], np.float64)}
    found, kernel = run_named(named, kinds, wanted, in_place, update=(op, step))
    return found | {"weight": named["weight"], "state": named["state"]}, kernel, state


def expected(arrays, state, momentum=0.9, wd=0.0, rescale=0.5, rounded=None):
    want = apart(arrays, rounded)
    weight = arrays[1].astype(np.float64)
    after = momentum * state - 0.1 * wd * weight - 0.1 * rescale * want.pop("d_weight")
    return want | {"state": after, "weight": weight + after}


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("no_bias", [False, True])
@pytest.mark.parametrize("rates", [{}, dict(wd=0.3), dict(momentum=0.0), dict(rescale=1.0)], ids=str)
def test_a_call_makes_the_step(kinds, no_bias, rates):
    arrays = given(no_bias=no_bias)
    got, kernel, state = run(arrays, kinds, **rates)
    assert "rows at a time" in kernel.name and ("reference" in kernel.name) == (kinds == "reference")
    assert len(got) == 5 - no_bias
    close(got, expected(arrays, state, **rates))


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("wanted", [("out",), ("d_data",), ("d_bias", "out")])
def test_what_nobody_reads_is_left_out(kinds, wanted):
    arrays = given()
    got, _, state = run(arrays, kinds, wanted=wanted)
    assert set(got) == {*wanted, "weight", "state"}
    close(got, expected(arrays, state))


@pytest.mark.parametrize("kinds", ["reference", TUNED])
def test_the_gradient_in_data_may_take_its_place(kinds):
    arrays = given()
    got, _, state = run(arrays, kinds, in_place=True)
    close(got, expected(arrays, state))


def test_the_reference_computes_in_float64():
    arrays = given("float64")
    got, _, state = run(arrays, "reference", wd=0.3)
    close(got, expected(arrays, state, wd=0.3), 1e-12)


@pytest.mark.parametrize("kinds", ["reference", TUNED])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("no_bias", [False, True])
def test_in_16_bits_weight_and_momentum_are_float32_and_so_is_what_adds_up(
    kinds, dtype, no_bias, monkeypatch
):
    monkeypatch.setattr(products, "SMALL", 1)
    arrays = given(dtype, no_bias=no_bias)
    arrays[1] = arrays[1].astype("float32")
    rates = dict(wd=0.3, momentum=0.8)
    got, kernel, state = run(arrays, kinds, **rates)
    assert ("reference" in kernel.name) == (kinds == "reference")
    types = {n: x.dtype.name for n, x in got.items()}
    assert types == dict.fromkeys(got, "float32") | {"d_data": dtype}
    close(got, expected(arrays, state, **rates), 2e-2 if dtype == "bfloat16" else 3e-3)
    want = expected(arrays, state, **rates, rounded=np.dtype(dtype))
    step, by = want["state"] - 0.8 * state, got["state"] - want["state"]
    rounding = float(ml_dtypes.finfo(dtype).eps) / 2
    if kinds == "reference" and not no_bias:  # it rounds scores before it adds a bias, too
        return
    assert np.linalg.norm(by) < 0.2 * rounding * np.linalg.norm(step), "more than scores is rounded"


# -- the pass ---------------------------------------------------------------------------------------

TOGETHER = {n: NETS[n] for n in ("usual", "no-bias", "scaled", "make-loss", "frozen-data", "two")}
TOGETHER["nothing-before"] = (mx.sym.MakeLoss(entropy(classifier(DATA))), dict(data=(ROWS, WIDTH)))
TOGETHER["outputs-follow"] = (
    (lambda loss: mx.sym.Group([mx.sym.MakeLoss(loss), mx.sym.BlockGrad(loss * 2), mx.sym.BlockGrad(loss)]))(
        entropy(classifier(mx.sym.tanh(classifier(DATA, "first"))))
    ),
    {},
)


@pytest.mark.parametrize("net, how", TOGETHER.values(), ids=TOGETHER)
def test_training_goes_as_with_a_whole_gradient_in_fewer_bytes(net, how, monkeypatch):
    found = trained(net, **how)
    assert len(joined(found[2])) == (2 if net is NETS["two"][0] else 1)
    same_bits(found, trained(net, apart=True, **how))
    monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", LEAST_BYTES)
    before = trained(net, **how)
    assert not joined(before[2])
    np.testing.assert_allclose(found[0], before[0], rtol=1e-5)
    for name, x in before[1].items():
        np.testing.assert_allclose(found[1][name], x, rtol=1e-4, atol=2e-6, err_msg=name)
    assert found[2].peak_bytes <= before[2].peak_bytes
    assert at_the_loss(found[2]) < at_the_loss(before[2])


@pytest.mark.skipif(not usable(), reason="llvmlite is not there")
@pytest.mark.parametrize("amp", ["bfloat16", "float16"])
@pytest.mark.parametrize("net", [network(), network(no_bias=True)], ids=["usual", "no-bias"])
def test_mixed_precision_goes_as_with_a_whole_gradient_in_fewer_bytes(net, amp, monkeypatch):
    found = trained(net, amp=amp)
    names = [t.name for t in found[2].problem.tasks]
    assert joined(found[2]) == ["loss"]
    assert not any("score_weight" in n for n in names), "neither a copy nor a gradient"
    same_bits(found, trained(net, amp=amp, apart=True))
    monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", LEAST_BYTES)
    before = trained(net, amp=amp)
    assert not joined(before[2]) and "score_weight_update" in [t.name for t in before[2].problem.tasks]
    np.testing.assert_allclose(found[0], before[0], rtol=1e-3)
    for name, x in before[1].items():
        np.testing.assert_allclose(found[1][name], x, rtol=0, atol=1e-2 * np.abs(x).max(), err_msg=name)
    assert at_the_loss(found[2]) < at_the_loss(before[2])


@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_a_weight_larger_than_the_scores_is_updated_so_too(amp, monkeypatch):
    """A gradient that is there as a whole would take more bytes than the scores."""
    net = network(hidden=ROWS)
    monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", LEAST_BYTES)
    assert not fused(plan_of(net, amp=amp)) and not joined(plan_of(net, amp=amp))
    monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", 0)
    assert joined(plan_of(net, amp=amp)) == ["loss"]
    clipped = plan_of(net, amp=amp, optimizer=sgd(clip_gradient=1.0))
    assert not fused(clipped) and not joined(clipped)


def sgd(**more):
    return mx.optimizer.SGD(**{"momentum": 0.9, "rescale_grad": 1 / ROWS, **more})


APART = {
    "the gradient is clipped": (network(), dict(optimizer=sgd(clip_gradient=1.0))),
    "no momentum": (network(), dict(optimizer=sgd(momentum=0.0))),
    "another momentum": (network(), dict(optimizer=mx.optimizer.NAG(momentum=0.9))),
    "squares of the gradient": (network(), dict(optimizer=mx.optimizer.Adam())),
    "a norm of the gradient": (network(), dict(optimizer=mx.optimizer.LAMB())),
    "gradients are looked at first": NETS["loss-scale"],
    "parameters of 16 bits": (network(), dict(amp="bfloat16", type_dict={"score_weight": "bfloat16"})),
    "two gradients of one weight": (tied(), dict(data=(ROWS,))),
    "much follows": (noisy(), {}),
    "nobody wants it": NETS["frozen"],
}


@pytest.mark.parametrize("net, how", APART.values(), ids=APART)
def test_the_gradient_is_whole_where(net, how):
    plan = plan_of(net, **how)
    assert not joined(plan)
    assert not any(t.preview for t in plan.problem.tasks)


def test_small_gradients_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", LEAST_BYTES)
    assert not joined(plan_of(network()))


def test_the_weight_has_no_other_reader():
    weight = mx.sym.var("score_weight")
    net = mx.sym.Group([network(weight=weight), mx.sym.BlockGrad(mx.sym.sum(weight))])
    assert not joined(plan_of(net))
    assert joined(plan_of(beside()))
    product = mx.sym.BlockGrad(mx.sym.dot(weight, weight, transpose_a=True))
    mixed = plan_of(mx.sym.Group([network(weight=weight), product]), amp="bfloat16")
    assert not joined(mixed)


def test_no_array_of_the_plan_is_as_large_as_the_weight():
    problem = plan_of(network()).problem
    assert all(v.nbytes < 4 * WIDTH * CLASSES for v in problem.values if not v.fixed and "score" in v.name)


# -- previews ---------------------------------------------------------------------------------------


def bound(net=None, **how):
    mx.random.seed(1)
    net = network() if net is None else net
    exe = net.simple_bind(mx.cpu(), **{"optimizer": SGD, **SHAPES, **how})
    rng = np.random.default_rng(0)
    for name, array in exe.arg_dict.items():
        shape = array.shape
        array[:] = rng.integers(0, CLASSES, shape) if name == "label" else rng.standard_normal(shape) / 4
    return exe


HYPER = [[0.1, 0.01]] * 4


def numbers(exe):
    return {n: a.asnumpy().tobytes() for n, a in (exe.arg_dict | exe.optimizer_states).items()}


def previews(exe):
    """The segments that a whole step leaves out."""
    program = exe._training_program()
    return [program.segments[g] for g in sorted(program.previews)]


@pytest.mark.parametrize("bulk", ["1", "2", "100"])
@pytest.mark.parametrize("naive", [False, True])
def test_calls_in_any_order_give_the_bits_of_whole_steps(bulk, naive, monkeypatch):
    monkeypatch.setenv("MXLITE_BULK_SIZE", bulk)
    monkeypatch.setenv("MXLITE_CHECK_PLAN", "1")
    with use_engine("naive") if naive else nullcontext():
        _calls_in_any_order()


def _calls_in_any_order():
    whole = bound()
    losses, after = [], []
    for _ in range(5):
        losses.append(whole.step(HYPER)[0].asnumpy())
        after.append(numbers(whole))
    other = bound()

    def forward(t):
        before = numbers(other)
        assert other.forward(is_train=True)[0].asnumpy() == losses[t]
        assert numbers(other) == before

    forward(0)
    forward(0)
    other.finish_step(HYPER)
    assert numbers(other) == after[0] and other.outputs[0].asnumpy() == losses[0]
    other.step(HYPER)
    assert numbers(other) == after[1] and other.outputs[0].asnumpy() == losses[1]
    forward(2)
    other.step(HYPER)
    assert numbers(other) == after[2]
    other.forward(is_train=True)
    other.forward(is_train=False)
    assert other.outputs[0].asnumpy() == pytest.approx(losses[3], rel=1e-6)
    other.forward(is_train=True)
    other.finish_step(HYPER)
    with pytest.raises(mx.MXLiteError, match="right before"):
        other.finish_step(HYPER)
    other.step(HYPER)
    assert numbers(other) == after[4] and other.outputs[0].asnumpy() == losses[4]
    assert other.measured_bytes == other.memory_plan.peak_bytes


def test_a_whole_step_runs_no_preview():
    exe, other = bound(), bound()
    exe.step(HYPER)
    other.step(HYPER)
    ran = []
    segments = previews(exe)
    assert [n for s in segments for n in s.names] == ["loss_preview", "end_preview"]
    assert exe.debug_str().count("(where forward is called by itself)") == 2
    for segment in segments:
        segment.calls = [lambda name=name: ran.append(name) for name in segment.names]
    exe.step(HYPER)
    exe.step(HYPER)
    mx.nd.waitall()
    assert not ran
    exe.forward(is_train=True)
    mx.nd.waitall()
    assert ran == ["loss_preview", "end_preview"]
    exe.finish_step(HYPER)
    for _ in range(3):
        other.step(HYPER)
    assert numbers(exe) == numbers(other)


def test_an_error_before_the_loss_is_told_by_either_call():
    for call in (lambda e: e.step(HYPER), lambda e: e.forward(is_train=True)):
        exe = bound()
        exe._training_program().segments[0].calls[0] = lambda: 1 / 0
        call(exe)
        with pytest.raises(mx.OperatorError, match="ZeroDivisionError"):
            exe.outputs[0].asnumpy()


def test_programs_that_share_an_arena_take_turns():
    """Steps of two executors in one arena, with a bulk of one, and each preview once in a while."""
    first = bound()
    second = first.reshape(data=(ROWS // 2, 30), label=(ROWS // 2,))
    apart = bound()
    for t in range(6):
        if t % 3 == 0:
            second.forward(is_train=True)
        first.step(HYPER)
        if t % 2:
            first.forward(is_train=True)
        second.forward(is_train=False)
        apart.step(HYPER)
        assert numbers(first) == numbers(apart)


def test_previews_take_no_time_of_a_step():
    for device in (None, "measured"):
        plan = plan_of(network(), device=device)
        tasks = [t for t in plan.problem.tasks if t.preview]
        assert [t.name for t in tasks] == ["loss_preview", "end_preview"]
        assert all(t.seconds == t.warm == 0 for t in tasks)
        assert plan.problem.step_seconds > 0


@pytest.mark.parametrize("net, how", [TOGETHER["usual"], TOGETHER["outputs-follow"]], ids=["usual", "follow"])
def test_a_step_within_a_budget_gives_the_same_bits(net, how):
    free = trained(net, **how)
    with pytest.raises(mx.MemoryBudgetError) as refused:
        plan_of(net, memory_budget=1, **how)
    least = refused.value.least_feasible_bytes
    assert least <= free[2].peak_bytes
    for is_apart in (False, True):
        tight = trained(net, memory_budget=least, apart=is_apart, **how)
        assert tight[2].peak_bytes <= least and joined(tight[2])
        same_bits(free, tight)


def test_a_plan_with_previews_goes_through_a_file():
    plan = plan_of(network(), optimizer=SGD)
    again = MemoryPlan.from_json(plan.to_json())
    check(again, again.predecessors)
    assert [t.preview for t in again.problem.tasks] == [t.preview for t in plan.problem.tasks]
    exe, other = bound(plan=again), bound()
    for e in (exe, other):
        e.step(HYPER)
    assert numbers(exe) == numbers(other)


# -- modules ----------------------------------------------------------------------------------------


def module(**more):
    mod = mx.mod.Module(network(), ["data"], ["label"], context=mx.cpu(), **{"fused_update": True, **more})
    mod.bind([("data", (ROWS, 30))], [("label", (ROWS,))])
    mx.random.seed(3)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer=sgd(learning_rate=0.1))
    return mod


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    data, label = rng.standard_normal((ROWS, 30)), rng.integers(0, CLASSES, ROWS)
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)])


def params(mod):
    return {n: a.asnumpy().tobytes() for part in mod.get_params() for n, a in part.items()}


def in_one(mod, batch):
    mod.forward_backward(batch)
    mod.update()


def read_between(mod, batch, path):
    """The usual loop with everything looked at that can be."""
    before = params(mod)
    mod.forward(batch, is_train=True)
    loss = mod.get_outputs()[0].asnumpy()
    mod.save_optimizer_states(str(path))
    states = path.read_bytes()
    assert params(mod) == before
    mod.backward()
    mod.update()
    assert mod.get_outputs()[0].asnumpy() == loss and params(mod) != before
    mod.save_optimizer_states(str(path))
    assert path.read_bytes() != states


def test_a_module_learns_alike_however_it_is_called(batch, tmp_path):
    whole, other, plain = module(), module(), module(fused_update=False)
    assert joined(whole.memory_plan) and not joined(plain.memory_plan)
    for _ in range(3):
        in_one(whole, batch)
        in_one(plain, batch)
        other.forward(batch, is_train=True)
        read_between(other, batch, tmp_path / "states")
        assert params(other) == params(whole)
    for name, array in plain.get_params()[0].items():
        got = whole.get_params()[0][name].asnumpy()
        np.testing.assert_allclose(got, array.asnumpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    assert whole.measured_bytes == whole.planned_bytes


def test_weights_set_between_the_passes_are_those_of_the_update(batch):
    """What backward reads of them is what is there then."""
    mod, other = module(), module()
    args, aux = mod.get_params()
    mod.forward(batch, is_train=True)
    halved = {n: a * 0.5 if n == "score_weight" else a for n, a in args.items()}
    mod.set_params(halved, aux)
    mod.backward()
    mod.update()
    other.set_params(halved, aux)
    in_one(other, batch)
    assert params(mod) == params(other)


def test_a_monitor_sees_outputs_and_changes_nothing(batch):
    seen = []
    mod, other = module(), module()
    mod.install_monitor(mx.mon.Monitor(1, stat_func=lambda x: x, pattern="end_output|tanh_output"))
    mod._executor.set_monitor_callback(lambda name, array: seen.append((name, array.asnumpy())), pattern=None)
    for _ in range(2):
        in_one(other, batch)
        mod.forward(batch, is_train=True)
        assert dict(seen)["end_output"] == other.get_outputs()[0].asnumpy()
        mod.backward()
        mod.update()
        assert dict(seen)["end_output"] == other.get_outputs()[0].asnumpy()
        seen.clear()
        assert params(mod) == params(other)


# -- the order of segments --------------------------------------------------------------------------


def beside_the_loss():
    """Something in the forward pass that nobody waits for, but who works where it worked."""
    aside = mx.sym.tanh(mx.sym.exp(mx.sym.var("aside"), name="exp"), name="aside")
    return mx.sym.Group([mx.sym.BlockGrad(aside), mx.sym.MakeLoss(entropy(classifier(DATA)))])


def previews_first(problem, num_constant=0):
    def key(t):
        return t >= problem.num_forward, not problem.tasks[t].preview, t

    return tuple(sorted(range(len(problem.tasks)), key=key))


@pytest.fixture
def single_steps(monkeypatch):
    """One step in each segment, and workers enough to run whatever may run."""
    monkeypatch.setenv("MXLITE_BULK_SIZE", "1")
    with only("reference"):
        yield


BESIDE = dict(data=(ROWS, WIDTH), aside=(1000,))


def test_who_works_where_a_preview_did_waits_for_those_before(single_steps):
    plan = plan_of(beside_the_loss(), **BESIDE)
    tasks = [plan.problem.tasks[t] for t in plan.schedule.task]
    aside, preview, loss = ([t.name for t in tasks].index(n) for n in ("aside", "loss_preview", "loss"))
    assert aside in plan.predecessors[preview] and aside not in plan.predecessors[loss]
    order = step_order(plan, 1)
    assert aside in order[loss]
    check(plan, order)


@pytest.mark.parametrize("order", [None, previews_first])
@pytest.mark.parametrize("call", ["step", "forward"])
def test_who_shares_the_arena_waits_for_all_that_runs(call, order, single_steps, monkeypatch):
    """Hold up one segment at a time; meanwhile no segment of the next program may touch the bytes."""
    if order is not None:
        monkeypatch.setattr(lower, "reorder", order)
    exe = bound(beside_the_loss(), **BESIDE)
    x = mx.sym.var("x")
    other = (mx.sym.exp(x) * mx.sym.tanh(x)).bind(mx.cpu(), {"x": mx.nd.ones((8,))}, shared_exec=exe)

    def run():
        return exe.step(HYPER[:2]) if call == "step" else exe.forward(is_train=True)

    run()
    other.forward()
    mx.nd.waitall()
    program = exe._train
    assert (order is not None) == (0 in program.previews)
    count = len(program.segments) if call == "step" else program.num_forward
    left_out = program.previews if call == "step" else ()
    mine = [s for g, s in enumerate(program.segments[:count]) if g not in left_out]
    theirs = other._infer.segments
    for held, first, waiting, then in (
        (mine, run, theirs, other.forward),
        (theirs, other.forward, mine, run),
    ):
        touched = []
        for segment in waiting:
            segment.calls.insert(0, partial(touched.append, 1))
        for segment in held:
            gate = threading.Event()
            segment.calls.insert(0, lambda gate=gate: gate.wait(10))
            try:
                first()
                touched.clear()
                then()
                threading.Event().wait(0.02)
                assert not touched, f"{segment.names} was still to run"
            finally:
                gate.set()
                mx.nd.waitall()
                del segment.calls[0]
            assert len(touched) == len(waiting)
        for segment in waiting:
            del segment.calls[0]
