"""Module: training inside a budget, stopping and going on, files, and what it says to bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.errors import ShapeError, StateError
from mxlite.engine import use_engine
from tests.networks.small_networks import mlp, random_network, same, weights


@pytest.fixture(autouse=True)
def ctrl_c():
    """A shell that runs tests in the background ignores SIGINT, and fit respects that: not here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def blobs(n=96, classes=5, seed=0):
    """Points around `classes` centres: learnable in a few epochs."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    centres = np.random.default_rng(99).standard_normal((classes, 8)) * 3
    x = centres[y] + rng.standard_normal((n, 8))
    return x.astype("float32"), y.astype("float32")


def iterator(batch=16, shuffle=False, **kw):
    return mx.io.NDArrayIter(*blobs(**kw), batch, shuffle=shuffle)


def fit(module, epochs=3, **options):
    mx.random.seed(1)
    np.random.seed(1)
    options = {
        "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9},
        "initializer": mx.init.Xavier(),
        **options,
    }
    module.fit(iterator(shuffle=True), num_epoch=epochs, **options)
    return module


def test_fit_learns_and_scores():
    module = fit(mx.mod.Module(mlp(), context=mx.cpu()), epochs=8)
    assert dict(module.score(iterator(), "acc"))["accuracy"] > 0.9
    assert module.is_fused
    assert module.measured_bytes == module.memory_plan.peak_bytes


@pytest.mark.parametrize("engine", ["naive", "threaded"])
@pytest.mark.parametrize("optimizer, params", [
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
    ("adam", {"learning_rate": 0.01}),
    ("nag", {"learning_rate": 0.05, "momentum": 0.9}),
    ("lamb", {"learning_rate": 0.01, "wd": 1e-3}),
])  # fmt: skip
def test_fused_and_hand_written_loops_give_the_same_weights(engine, optimizer, params):
    with use_engine(engine):
        fused = fit(mx.mod.Module(mlp()), optimizer=optimizer, optimizer_params=params)
        split = fit(mx.mod.Module(mlp(), fused_update=False), optimizer=optimizer, optimizer_params=params)
        assert fused.is_fused
        assert not split.is_fused
        assert same(weights(fused), weights(split))
        assert split.measured_bytes == split.memory_plan.peak_bytes
        loop = mx.mod.Module(mlp())
        train = iterator(shuffle=True)
        mx.random.seed(1)
        np.random.seed(1)
        train = iterator(shuffle=True)
        loop.bind(train.provide_data, train.provide_label)
        loop.init_params(mx.init.Xavier())
        loop.init_optimizer(optimizer=optimizer, optimizer_params=params)
        for _ in range(3):
            for batch in train:
                loop.forward_backward(batch)
                loop.update()
            train.reset()
        assert same(weights(loop), weights(fused))


def test_every_budget_trains_to_the_same_bits():
    net, shapes = random_network(5, blocks=9)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, *shapes["data"][1:])).astype("float32")
    y = rng.integers(0, 5, 12).astype("float32")

    def run(budget):
        mx.random.seed(3)
        module = mx.mod.Module(net, memory_budget=budget)
        module.fit(
            mx.io.NDArrayIter(x, y, 4), num_epoch=2, optimizer_params={"learning_rate": 0.05, "momentum": 0.9}
        )
        assert module.measured_bytes == module.memory_plan.peak_bytes
        return module

    full = run(None)
    peak = full.memory_plan.peak_bytes
    with pytest.raises(mx.MemoryBudgetError) as caught:
        run(full.memory_plan.lower_bound_bytes - 1)
    least = caught.value.least_feasible_bytes
    for budget in (least, (least + peak) // 2, str(peak)):
        module = run(budget)
        assert module.memory_plan.peak_bytes <= int(budget)
        assert same(weights(module), weights(full))
    assert least < peak


def test_optimizer_states_count_against_the_budget():
    without = fit(mx.mod.Module(mlp(), fused_update=False), optimizer_params={"learning_rate": 0.1}, epochs=1)
    for fused in (False, True):
        momentum = fit(mx.mod.Module(mlp(), fused_update=fused), epochs=1)
        size = sum(4 * a.size for a in momentum.get_params()[0].values())
        assert momentum.memory_plan.breakdown["optimizer"] >= size
    assert without.memory_plan.breakdown["optimizer"] == 0


@pytest.mark.parametrize("stop_after", [1, 4, 6, 11])
@pytest.mark.parametrize("fused", [True, False])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, stop_after, fused):
    """Ctrl-C after some batch, resume in a fresh module: the weights of a run that was never stopped."""
    h = mx.sym.Dropout(mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn"), p=0.3)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=5, name="fc"), name="softmax")
    schedule = dict(learning_rate=0.1, momentum=0.9)
    whole = fit(mx.mod.Module(net, fused_update=fused), epochs=3, optimizer_params=schedule)
    prefix = str(tmp_path / "run")
    seen = 0

    def interrupt(param):
        nonlocal seen
        seen += 1
        if seen == stop_after:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(mx.mod.Module(net, fused_update=fused), batch_end_callback=interrupt, checkpoint_prefix=prefix,
            optimizer_params=schedule)  # fmt: skip
    assert signal.getsignal(signal.SIGINT) is before
    assert os.listdir(tmp_path) == ["run.resume"]
    mx.random.seed(77)
    np.random.seed(77)
    again = mx.mod.Module(net, fused_update=fused)
    again.fit(iterator(shuffle=True), num_epoch=3, optimizer_params=schedule, initializer=mx.init.Xavier(),
              checkpoint_prefix=prefix, resume=True)  # fmt: skip
    assert same(weights(again), weights(whole))


def test_a_real_ctrl_c_in_a_script_leaves_a_state_to_resume_from(tmp_path):
    script = textwrap.dedent(
        """
        import sys, numpy as np, mxlite as mx
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5)
        net = mx.sym.SoftmaxOutput(net, name="softmax")
        x = np.random.rand(64, 8).astype("float32"); y = np.zeros(64, "float32")
        def tell(param):
            if param.epoch == 0 and param.nbatch == 3:
                print("running", flush=True)
        mod = mx.mod.Module(net)
        try:
            data = mx.io.NDArrayIter(x, y, 8)
            mod.fit(data, num_epoch=1000000, batch_end_callback=tell, checkpoint_prefix="r")
        except KeyboardInterrupt:
            print("stopped", flush=True)
            sys.exit(130)
        """
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(mx.__file__))}
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tmp_path, env=env, text=True
    )
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "stopped\n"
    assert child.returncode == 130
    assert (tmp_path / "r.resume").exists()


def test_checkpoints_have_mxnets_names_and_come_back(tmp_path):
    prefix = str(tmp_path / "net")
    module = fit(mx.mod.Module(mlp()), epochs=2)
    module.save_checkpoint(prefix, 2, save_optimizer_states=True)
    assert sorted(os.listdir(tmp_path)) == ["net-0002.params", "net-0002.states", "net-symbol.json"]
    symbol, _, aux = mx.model.load_checkpoint(prefix, 2)
    assert symbol.list_arguments() == mlp().list_arguments()
    assert aux == {}
    loaded = mx.mod.Module.load(prefix, 2, load_optimizer_states=True, fused_update=True)
    train = iterator()
    loaded.bind(train.provide_data, train.provide_label)
    assert same(weights(loaded), weights(module))
    params = {"learning_rate": 0.1, "momentum": 0.9}
    loaded.init_optimizer(optimizer_params=params)
    for m in (loaded, module):
        train.reset()
        for batch in train:
            m.train_step(batch)
    assert same(weights(loaded), weights(module))


def test_fused_and_separate_states_are_the_same_file(tmp_path):
    files = []
    for fused in (True, False):
        module = fit(mx.mod.Module(mlp(), fused_update=fused), epochs=1)
        module.save_optimizer_states(str(tmp_path / str(fused)))
        files.append((tmp_path / str(fused)).read_bytes())
    assert files[0] == files[1]


def test_mxnets_pickled_states_are_refused(tmp_path):
    module = fit(mx.mod.Module(mlp()), epochs=1)
    before = weights(module)
    (tmp_path / "x.states").write_bytes(b"\x80\x03}q\x00.")
    with pytest.raises(mx.FormatError, match="pickle"):
        module.load_optimizer_states(str(tmp_path / "x.states"))
    assert same(weights(module), before)


@pytest.mark.parametrize("cut", [0, 10, 100, -1])
def test_a_damaged_resume_file_is_refused(tmp_path, cut):
    prefix = str(tmp_path / "run")
    fit(mx.mod.Module(mlp()), epochs=1, checkpoint_prefix=prefix)
    data = (tmp_path / "run.resume").read_bytes()
    (tmp_path / "run.resume").write_bytes(data[:cut])
    with pytest.raises(mx.FormatError):
        fit(mx.mod.Module(mlp()), epochs=2, checkpoint_prefix=prefix, resume=True)


def test_predict_cuts_off_the_padding():
    module = fit(mx.mod.Module(mlp()), epochs=1)
    x, y = blobs(n=50)
    out = module.predict(mx.io.NDArrayIter(x, y, 16))
    assert out.shape == (50, 5)
    parts = module.predict(mx.io.NDArrayIter(x, y, 16), merge_batches=False)
    assert [p[0].shape[0] for p in parts] == [16, 16, 16, 2]
    one = module.predict(x[:16])
    np.testing.assert_array_equal(one.asnumpy(), out.asnumpy()[:16])


def test_another_batch_size_binds_by_itself():
    module = fit(mx.mod.Module(mlp()), epochs=1)
    before = weights(module)
    x, _ = blobs(n=40)
    module.forward(mx.io.DataBatch([mx.nd.array(x)]), is_train=False)
    assert module.get_outputs()[0].shape == (40, 5)
    assert same(weights(module), before)
    module.forward(mx.io.DataBatch([mx.nd.array(x[:3])]), is_train=False)
    assert module.get_outputs()[0].shape == (3, 5)
    for batch in iterator():
        module.train_step(batch)
    assert not same(weights(module), before)


def test_input_gradients_on_request():
    module = mx.mod.Module(mlp())
    module.bind([("data", (4, 8))], [("softmax_label", (4,))], inputs_need_grad=True)
    module.init_params(mx.init.Xavier())
    x, y = blobs(n=4)
    module.forward_backward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]))
    assert module.get_input_grads()[0].shape == (4, 8)
    assert np.abs(module.get_input_grads()[0].asnumpy()).sum() > 0


def network_with_a_state():
    """One step of a recurrent network whose first state is an argument."""
    data, state = mx.sym.Variable("data"), mx.sym.Variable("h0", shape=(0, 4))
    out, (last,) = mx.rnn.RNNCell(4, prefix="cell_")(data, [state])
    logits = mx.sym.FullyConnected(out, num_hidden=3, name="out")
    return mx.sym.Group([mx.sym.SoftmaxOutput(logits, name="softmax"), mx.sym.BlockGrad(last, name="last")])


@pytest.mark.parametrize("fused", [False, True])
def test_states_hold_what_they_were_given(fused):
    module = mx.mod.Module(network_with_a_state(), state_names=["h0"], fused_update=fused)
    module.bind([("data", (2, 5))], [("softmax_label", (2,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer()
    assert "h0" not in module.get_params()[0]
    assert [s.shape for s in module.get_states()] == [(2, 4)]
    module.set_states(value=0.5)
    batch = mx.io.DataBatch([mx.nd.ones((2, 5))], [mx.nd.zeros((2,))])
    module.forward(batch, is_train=False)
    first = module.get_outputs()[1].asnumpy()
    module.set_states(states=module.get_outputs(merge_multi_context=False)[1:])
    np.testing.assert_array_equal(module.get_states(merge_multi_context=False)[0][0].asnumpy(), first)
    module.forward_backward(batch)
    module.update()
    np.testing.assert_array_equal(module.get_states()[0].asnumpy(), first)
    assert abs(module.get_outputs()[1].asnumpy() - first).max() > 1e-3
    assert module.measured_bytes == module.planned_bytes


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (dict(), StateError, "either states"),
        (dict(states=[], value=1), StateError, "either states"),
        (dict(states=[]), StateError, r"0 arrays were given for \['h0'\]"),
        (dict(states=[np.zeros((2, 4))]), TypeError, "'h0' must be an NDArray, got ndarray"),
        (dict(states=[mx.nd.zeros((3, 4))]), ShapeError, r"'h0' is \(2, 4\), but \(3, 4\) was given"),
    ],
)
def test_states_that_do_not_fit_are_named(call, error, text):
    module = mx.mod.Module(network_with_a_state(), state_names=["h0"])
    module.bind([("data", (2, 5))], [("softmax_label", (2,))])
    module.init_params()
    with pytest.raises(error, match=text):
        module.set_states(**call)


def test_a_module_without_states_has_none_to_set():
    module = mx.mod.BucketingModule(lambda key: (mlp(), ("data",), ("softmax_label",)), 1)
    module.bind([("data", (2, 8))], [("softmax_label", (2,))])
    module.init_params()
    assert module.get_states() == []
    with pytest.raises(StateError, match="given for"):
        module.set_states([mx.nd.zeros((1,))])


def test_outputs_come_in_lists_over_devices_unless_merged():
    module = fit(mx.mod.Module(mlp()), epochs=1)
    module.forward(next(iter(iterator())), is_train=False)
    (merged,), ((alone,),) = module.get_outputs(), module.get_outputs(merge_multi_context=False)
    assert merged is alone


def test_each_of_several_cpus_has_its_part_of_the_batch_along_its_layout():
    net = mx.sym.Activation(mx.sym.Variable("data"), act_type="relu", __layout__="TNC")
    module = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    module.bind([mx.io.DataDesc("data", (3, 5, 2), layout="TNC")], inputs_need_grad=True)
    module.init_params()
    values = np.arange(1, 31, dtype="float32").reshape(3, 5, 2)
    module.forward(mx.io.DataBatch([mx.nd.array(values)]), is_train=True)
    module.backward([mx.nd.array(values)])
    for found in (module.get_outputs, module.get_input_grads):
        (parts,), (whole,) = found(merge_multi_context=False), found()
        assert [p.shape for p in parts] == [(3, 2, 2), (3, 3, 2)]
        np.testing.assert_array_equal(np.concatenate([p.asnumpy() for p in parts], 1), values)
        np.testing.assert_array_equal(whole.asnumpy(), values)


def test_a_network_without_data_has_outputs():
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(mx.sym.var("a_weight", shape=(3,)))), name="loss")
    module = mx.mod.Module(net, data_names=(), label_names=())
    module.bind([])
    module.init_params(mx.init.One())
    module.forward(mx.io.DataBatch(data=[]), is_train=False)
    (out,) = module.get_outputs()
    assert out.asscalar() == 3 and module.get_outputs(merge_multi_context=False)[0][0].asscalar() == 3


def test_states_are_set_from_the_parts_of_several_cpus():
    state = mx.sym.Variable("s")
    net = mx.sym.Group([mx.sym.Variable("data") + state])
    module = mx.mod.Module(net, label_names=None, state_names=["s"], context=[mx.cpu(0), mx.cpu(1)])
    module.bind([("data", (5, 2))], for_training=False)
    module.init_params()
    batch = mx.io.DataBatch([mx.nd.ones((5, 2))])
    module.set_states(value=1)
    module.forward(batch)
    first = module.get_outputs()
    module.set_states(states=module.get_outputs(merge_multi_context=False))
    module.forward(batch)
    assert (first[0].asnumpy() == 2).all() and (module.get_outputs()[0].asnumpy() == 3).all()


def test_a_batch_is_counted_along_the_n_of_its_layout():
    net = mx.sym.SwapAxis(mx.sym.Variable("data"), dim1=0, dim2=1)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3), name="softmax")
    module = mx.mod.Module(net)
    module.bind([mx.io.DataDesc("data", (5, 8, 7), layout="TNC")], [("softmax_label", (8,))])
    module.init_params()
    module.init_optimizer()
    assert module._optimizer.rescale_grad == 1 / 8 and module._exec_group.batch_size == 8


def test_fixed_parameters_stay():
    module = mx.mod.Module(mlp(), fixed_param_names=["fc1_weight"])
    fit(module, epochs=2)
    start = fit(mx.mod.Module(mlp()), epochs=0)
    assert np.array_equal(weights(module)["fc1_weight"], weights(start)["fc1_weight"])
    assert not np.array_equal(weights(module)["fc2_weight"], weights(start)["fc2_weight"])


def test_calls_in_the_wrong_order_are_state_errors():
    module = mx.mod.Module(mlp())
    batch = mx.io.DataBatch([mx.nd.zeros((4, 8))], [mx.nd.zeros((4,))])
    with pytest.raises(mx.StateError, match="bind"):
        module.forward(batch)
    module.bind([("data", (4, 8))], [("softmax_label", (4,))])
    with pytest.raises(mx.StateError, match="init_params"):
        module.forward(batch)
    module.init_params()
    with pytest.raises(mx.StateError, match="init_optimizer"):
        module.update()
    with pytest.raises(AssertionError):
        module.backward()


@pytest.mark.parametrize(
    "act, error, text",
    [
        (lambda: mx.mod.Module(mlp(), data_names=["dta"]), mx.BindError, "Did you mean 'data'"),
        (lambda: mx.mod.Module(mlp(), context=[mx.gpu(0), mx.gpu(1)]), mx.MXLiteError, "one device"),
        (lambda: mx.mod.Module(mlp()).bind([("date", (4, 8))]), mx.BindError, "lacks 'data'"),
        (lambda: mx.mod.Module(mlp()).bind("data"), mx.BindError, "DataDesc or .name, shape."),
        (lambda: mx.mod.Module(mlp()).bind([("data",)]), mx.BindError, "data_shapes must be a list"),
        (lambda: fit(mx.mod.Module(mlp()), optimizer="sdg"), ValueError, "sgd"),
        (lambda: fit(mx.mod.Module(mlp()), optimizer_params=3), mx.OpAttributeError, "optimizer_params must"),
        (
            lambda: fit(mx.mod.Module(mlp()), optimizer_params={"lr_scheduler": 3}),
            mx.OpAttributeError, "lr_scheduler must be an LRScheduler",
        ),
        (lambda: fit(mx.mod.Module(mlp()), epochs=None), mx.StateError, "num_epoch"),
        (lambda: fit(mx.mod.Module(mlp()), eval_metric="acuracy"), ValueError, "accuracy"),
        (lambda: fit(mx.mod.Module(mlp(), memory_budget="1kB")), mx.MemoryBudgetError, "does work"),
        (lambda: fit(mx.mod.Module(mlp(), memory_budget="1 gigabyte")), mx.BudgetError, "GB"),
        (lambda: fit(mx.mod.Module(mlp()), resume=True), mx.StateError, "checkpoint_prefix"),
        (
            lambda: fit(mx.mod.Module(mlp()), arg_params={"fc1_bias": mx.nd.zeros((3,))}, allow_missing=True),
            mx.ShapeError, "fc1_bias",
        ),
        (lambda: mx.mod.Module.load("nowhere/net", 1), FileNotFoundError, "net-symbol.json"),
    ],
)  # fmt: skip
def test_bad_input_is_named(act, error, text):
    with pytest.raises(error, match=text):
        act()


def test_a_batch_with_too_few_arrays_is_refused_not_filled_with_the_last_ones():
    module = mx.mod.Module(mlp())
    module.bind([("data", (4, 8))], [("softmax_label", (4,))])
    module.init_params()
    for data in ([], [mx.nd.zeros((4, 8))] * 2):
        with pytest.raises(mx.ShapeError, match=rf"data has {len(data)} arrays for \['data'\]"):
            module.forward(mx.io.DataBatch(data, [mx.nd.zeros((4,))]))
    two = mx.sym.Group([mlp(), mx.sym.LinearRegressionOutput(mx.sym.Variable("x"), name="line")])
    module = mx.mod.Module(two, data_names=("data", "x"), label_names=("softmax_label", "line_label"))
    module.bind([("data", (4, 8)), ("x", (4, 1))], [("softmax_label", (4,)), ("line_label", (4, 1))])
    module.init_params()
    with pytest.raises(mx.ShapeError, match="label has 1 arrays for"):
        module.forward(mx.io.DataBatch([mx.nd.zeros((4, 8)), mx.nd.zeros((4, 1))], [mx.nd.zeros((4,))]))
    with pytest.raises(mx.ShapeError, match="data has 1 arrays for"):  # of another size besides
        module.forward(mx.io.DataBatch([mx.nd.zeros((3, 8))]))


def test_a_budget_nobody_can_keep_fails_before_anything_is_allocated():
    module = mx.mod.Module(mlp(hidden=4096), memory_budget="10kB", fused_update=False)
    with pytest.raises(mx.MemoryBudgetError) as caught:
        module.bind([("data", (4, 8))], [("softmax_label", (4,))])
    assert caught.value.least_feasible_bytes > 4 * 4096 * 8
    assert not module.binded


# -- as MXNet's own programs call it -----------------------------------------------------------


def values(module):
    return {n: a.asnumpy().ravel().tolist() for n, a in module.get_params()[0].items()}


def test_set_params_leaves_what_is_not_given():
    module = mx.mod.Module(mlp(hidden=2, classes=2))
    module.bind([("data", (1, 2))], [("softmax_label", (1,))])
    module.init_params(mx.init.Constant(3))
    before = values(module)
    module.set_params({"fc1_weight": mx.nd.ones((2, 2))}, {}, allow_missing=True)
    assert values(module) == {**before, "fc1_weight": [1.0] * 4}
    module.set_params({"fc1_weight": mx.nd.zeros((2, 2))}, {}, allow_missing=True, force_init=False)
    assert values(module) == {**before, "fc1_weight": [1.0] * 4}
    with pytest.raises(mx.BindError, match=r"'fc9_bias' is no parameter"):
        module.set_params({"fc9_bias": mx.nd.ones((2,))}, {}, allow_missing=True)
    module.set_params({"fc9_bias": mx.nd.ones((2,))}, None, allow_missing=True, allow_extra=True)
    with pytest.raises(mx.MXNetError, match="lacks 'fc1_weight'"):
        module.set_params({}, {})
    module.set_params(None, None)
    assert values(module) == {**before, "fc1_weight": [1.0] * 4}


@pytest.mark.parametrize("kind", ["module", "sequence"])
def test_parameters_beyond_the_network_s_are_ignored(kind):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    module = mx.mod.Module(net, label_names=None)
    if kind == "sequence":
        module = mx.mod.SequentialModule().add(module)
    module.bind([("data", (1, 1))])
    given = {"fc_weight": mx.nd.ones((1, 1)), "fc_bias": mx.nd.ones((1,)), "old_weight": mx.nd.ones((7,))}
    module.init_params(arg_params=given)
    assert values(module) == {"fc_weight": [1.0], "fc_bias": [1.0]}
    module.set_params({n: 2 * a for n, a in given.items()}, {})
    assert values(module) == {"fc_weight": [2.0], "fc_bias": [2.0]}
    module.set_params({"fc_bias": mx.nd.ones((1,))}, {}, allow_missing=True)
    assert values(module) == {"fc_weight": [2.0], "fc_bias": [1.0]}


def test_a_batch_need_not_have_labels():
    Batch = namedtuple("Batch", ["data"])
    module = mx.mod.Module(mlp())
    module.bind([("data", (2, 8))], [("softmax_label", (2,))])
    module.init_params()
    for rows in (2, 3):
        module.forward(Batch([mx.nd.ones((rows, 8))]), is_train=False)
        assert module.get_outputs()[0].shape == (rows, 5)


def test_gradients_of_the_data_that_nobody_asked_for_are_none():
    net = mx.sym.Variable("a") * mx.sym.Variable("b")
    module = mx.mod.Module(net, data_names=["a", "b"], label_names=None)
    shapes = [("a", (2,)), ("b", (2,))]
    module.bind(shapes, inputs_need_grad=True, grad_req={"a": "null", "b": "write"})
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.full((2,), 3), mx.nd.ones((2,))]))
    module.backward([mx.nd.ones((2,))])
    a, b = module.get_input_grads()
    assert a is None and b.asnumpy().tolist() == [3, 3]
    module.bind(shapes, inputs_need_grad=True, grad_req="null", force_rebind=True)
    module.forward(mx.io.DataBatch([mx.nd.ones((2,)), mx.nd.ones((2,))]))
    assert module.get_input_grads() == [None, None]


def test_a_module_without_parameters_runs_its_loop():
    module = mx.mod.Module(mx.sym.Dropout(mx.sym.Variable("data")), label_names=None)
    module.bind([("data", (2, 3))])
    module.init_params()
    module.init_optimizer()
    module.forward_backward(mx.io.DataBatch([mx.nd.ones((2, 3))]))
    module.update()
    assert module.get_outputs()[0].shape == (2, 3)


@pytest.mark.parametrize("fused", [True, False])
def test_parameters_of_whole_numbers_are_not_trained(fused):
    rows = mx.sym.Variable("rows", shape=(2,), dtype="int32")
    table = mx.sym.take(mx.sym.Variable("table", shape=(3, 2)), rows)
    net = mx.sym.MakeLoss(mx.sym.Variable("data") * table)
    module = mx.mod.Module(net, label_names=None, fused_update=fused)
    module.bind([("data", (2, 2))])
    module.set_params({"rows": mx.nd.array([2, 0], dtype="int32"), "table": mx.nd.ones((3, 2))}, {})
    module.init_optimizer(optimizer_params={"learning_rate": 1, "rescale_grad": 1})
    module.forward_backward(mx.io.DataBatch([mx.nd.ones((2, 2))]))
    module.update()
    assert values(module) == {"rows": [2, 0], "table": [0, 0, 1, 1, 0, 0]}
    assert module._executor.memory_plan.breakdown.get("gradients", 0) == (0 if fused else 24)


def test_gradients_of_two_batches_are_added_by_hand():
    """The loop of MXNet's adversarial networks: real and made samples, one update."""
    net = mx.sym.MakeLoss(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc"))
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (2, 1))])
    module.init_params(mx.init.Constant(1))
    module.init_optimizer(optimizer_params={"learning_rate": 1, "rescale_grad": 1})
    group = module._exec_group
    assert (group.param_names, group.batch_size) == (["fc_weight", "fc_bias"], 2)
    assert group.param_arrays[0][0] is group.execs[0].arg_dict["fc_weight"]
    for value in (2, 5):
        module.forward(mx.io.DataBatch([mx.nd.full((2, 1), value)]), is_train=True)
        module.backward()
        if value == 2:
            before = [[g.copy() for g in grads] for grads in module._exec_group.grad_arrays]
    for mine, others in zip(module._exec_group.grad_arrays, before):
        for a, b in zip(mine, others):
            a += b
    module.update()
    assert values(module) == {"fc_weight": [1 - 2 * (2 + 5)], "fc_bias": [0 - 2 * 2]}


@pytest.mark.parametrize(
    "request_, weight, data",
    [
        ("add", 4, 2),
        ("write", 2, 1),
        ({"data": "null"}, 2, None),
        ({"data": "add", "other": "null"}, 2, 2),
        (["add", "null"], None, 2),
    ],
)
def test_requests_are_read_as_mxnet_reads_them(request_, weight, data):
    net = mx.sym.MakeLoss(
        mx.sym.broadcast_mul(mx.sym.Variable("data"), mx.sym.Variable("a_weight", shape=(1, 1)))
    )
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (2, 1))], inputs_need_grad=True, grad_req=request_)

    module.init_params(arg_params={"a_weight": mx.nd.ones((1, 1))})
    for _ in range(2):
        module.forward_backward(mx.io.DataBatch([mx.nd.ones((2, 1))]))
    group = module._exec_group
    for (grad,), expected in ((group.grad_arrays[0], weight), (group.input_grad_arrays[0], data)):
        assert (None if grad is None else grad.asnumpy().ravel()[0]) == expected


def test_a_monitor_may_be_installed_at_the_executor_group():
    module = mx.mod.Module(mlp())
    module.bind([("data", (2, 8))], [("softmax_label", (2,))])
    monitor = mx.mon.Monitor(1, pattern="fc1_output")
    module._exec_group.install_monitor(monitor)
    module.init_params()
    monitor.tic()
    module.forward(mx.io.DataBatch([mx.nd.ones((2, 8))]), is_train=False)
    assert [name for _, name, _ in monitor.toc()] == ["fc1_output"]


@pytest.mark.parametrize("fused", [True, False])
def test_the_rate_of_a_module_s_optimizer_may_be_changed_between_steps(fused):
    net = mx.sym.MakeLoss(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, no_bias=True, name="fc")
    )
    module = mx.mod.Module(net, label_names=None, fused_update=fused)
    module.bind([("data", (1, 1))])
    module.init_params(mx.init.Constant(0))
    module.init_optimizer(optimizer_params={"learning_rate": 1})
    for rate in (1, 0.25):
        module._optimizer.lr = rate
        module.forward_backward(mx.io.DataBatch([mx.nd.ones((1, 1))]))
        module.update()
    assert values(module) == {"fc_weight": [-1.25]}
    assert module._optimizer.idx2name == dict(enumerate(module._exec_group.param_names))


def test_the_last_callback_of_score_is_told_how_many_batches_there_were():
    seen = []
    module = fit(mx.mod.Module(mlp()), epochs=1)
    for num_batch in (None, 2):
        module.score(iterator(), "acc", num_batch, score_end_callback=lambda p: seen.append(p.nbatch))
    assert seen == [6, 2]


def test_a_loop_after_mxnets_fit_may_prepare_its_batches():
    for module in (mx.mod.Module(mlp()), mx.mod.PythonLossModule()):
        with pytest.raises(StateError, match="call bind"):
            module.prepare(None)
    module = fit(mx.mod.Module(mlp()), epochs=1)
    module.prepare(next(iter(iterator())), sparse_row_id_fn=None)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_parameter_that_no_gradient_reaches_decays_in_the_step_as_in_the_loop(momentum):
    x = mx.sym.var("data")
    loss = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")
    net = mx.sym.Group([loss, mx.sym.BlockGrad(mx.sym.FullyConnected(x, num_hidden=3, name="blocked"))])
    found = []
    for fused in (True, False):
        mod = mx.mod.Module(net, fused_update=fused)
        mod.bind([("data", (4, 5))], [("softmax_label", (4,))])
        mod.init_params(mx.init.One())
        rates = dict(learning_rate=0.1, wd=0.1, momentum=momentum)
        mod.init_optimizer(optimizer="sgd", optimizer_params=rates)
        for _ in range(2):
            mod.forward_backward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.zeros((4,))]))
            mod.update()
        found.append(mod.get_params()[0]["blocked_weight"].asnumpy())
    assert found[0].max() < 0.99
    np.testing.assert_array_equal(*found)
