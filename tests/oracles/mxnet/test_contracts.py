"""Small contracts of MXNet 1.9.1 that its users' programs lean on; each was compared with it by hand."""

import json
import operator
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import alias
from mxlite.executor.plan.listing import totals

ROOT = Path(__file__).resolve().parents[3]


def _net():
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc1")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn"), act_type="relu", name="act")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc2"), name="softmax")


def _bound(context=None):
    module = mx.mod.Module(_net(), context=context)
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier(rnd_type="gaussian"))
    return module


def _batch():
    data = np.random.default_rng(0).normal(size=(4, 5))
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array([0, 1, 2, 0])])


# -- optimizers


@pytest.mark.parametrize("kind", ["sgd", "nag", "lars"])
def test_the_state_comes_before_the_float32_weight(kind):
    weight = mx.nd.ones(3, dtype="float16")
    optimizer = mx.optimizer.create(kind, momentum=0.9, multi_precision=True)
    momentum, master = optimizer.create_state_multi_precision(0, weight)
    assert momentum.asnumpy().tolist() == [0, 0, 0] and master.asnumpy().tolist() == [1, 1, 1]
    plain = mx.optimizer.create(kind, multi_precision=True).create_state_multi_precision(0, weight)
    assert plain[0] is None and plain[1].dtype == np.float32


@pytest.mark.parametrize("kind", ["adam", "rmsprop", "adagrad", "signum", "lbsgd"])
def test_with_other_optimizers_the_float32_weight_comes_first(kind):
    weight = mx.nd.ones(3, dtype="float16")
    master, _ = mx.optimizer.create(kind, multi_precision=True).create_state_multi_precision(0, weight)
    assert master.dtype == np.float32 and master.asnumpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["sgd", "nag", "lars", "adam"])
def test_a_step_in_float16_follows_its_state_in_either_order(kind):
    options = {} if kind == "adam" else {"momentum": 0.9}
    narrow = mx.optimizer.create(kind, learning_rate=0.1, multi_precision=True, **options)
    wide = mx.optimizer.create(kind, learning_rate=0.1, **options)
    weight, reference = mx.nd.array([1.0, 2.0, 3.0], dtype="float16"), mx.nd.array([1.0, 2.0, 3.0])
    state, own = narrow.create_state_multi_precision(0, weight), wide.create_state(0, reference)
    for step in range(3):
        gradient = mx.nd.array([0.5, -1.0, 0.25]) * (step + 1)
        narrow.update_multi_precision(0, weight, gradient.astype("float16"), state)
        wide.update(0, reference, gradient, own)
    np.testing.assert_allclose(weight.asnumpy(), reference.asnumpy(), rtol=2e-3)


def test_states_written_when_float32_weights_came_first_are_read():
    optimizer = mx.optimizer.SGD(momentum=0.9, multi_precision=True)
    updater = mx.optimizer.get_updater(optimizer)
    weight = mx.nd.ones(3, dtype="float16")
    updater(0, mx.nd.ones(3, dtype="float16"), weight)
    momentum, master = (a.asnumpy() for a in updater.states[0])
    tree = mx.mod.unpack_state(updater.get_states(), "these")
    del tree["master_last"]
    tree["states"] = [[i, s[::-1]] for i, s in tree["states"]]
    updater.set_states(mx.mod.pack_state(tree))
    np.testing.assert_array_equal(updater.states[0][0].asnumpy(), momentum)
    np.testing.assert_array_equal(updater.states[0][1].asnumpy(), master)


@pytest.mark.parametrize("kind", ["sgd", "nag"])
def test_a_state_without_momentum_is_taken(kind):
    weight = mx.nd.ones(3)
    mx.optimizer.create(kind, learning_rate=0.1).update(0, weight, mx.nd.ones(3), mx.nd.zeros(3))
    np.testing.assert_allclose(weight.asnumpy(), 0.9, rtol=1e-6)


# -- monitors


def test_a_monitor_lists_the_statistics_of_batch_norm():
    module, monitor = _bound(), mx.mon.Monitor(1, stat_func=lambda a: a * 1.0)
    module.install_monitor(monitor)
    monitor.tic()
    module.forward(_batch(), is_train=True)
    seen = {name: text for _, name, text in monitor.toc()}
    before = np.array([float(x) for x in seen["bn_mean"].strip("[]\t").split()])
    weight, bias = (module.get_params()[0][n].asnumpy() for n in ("fc1_weight", "fc1_bias"))
    x = _batch().data[0].asnumpy() @ weight.T + bias
    np.testing.assert_allclose(before, x.mean(0), rtol=1e-4, atol=1e-5)
    inverse = np.array([float(x) for x in seen["bn_var"].strip("[]\t").split()])
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(0) + 1e-3), rtol=1e-3)


def test_one_array_of_many_has_its_name_of_many():
    net = mx.sym.UpSampling(mx.sym.Variable("x"), scale=2, sample_type="nearest", name="up")
    names, executor = [], net.simple_bind(mx.cpu(), grad_req="null", x=(1, 2, 3, 3))
    executor.set_monitor_callback(lambda name, array: names.append(name), monitor_all=True)
    executor.forward()
    assert names == ["x", "up_arg0", "up_output"]


def test_operators_are_listed_with_what_they_take():
    assert {"Activation", "Concat", "broadcast_add"} <= set(mx.operator.get_all_registered_operators())
    told = mx.operator.get_operator_arguments("FullyConnected")
    assert told.narg == len(told.names) == len(told.types)
    assert told.names[:4] == ["data", "weight", "bias", "num_hidden"]
    assert told.types[0] == "NDArray-or-Symbol" and told.types[3] == "int, required"
    assert mx.operator.get_operator_arguments("concat").types[0] == "NDArray-or-Symbol[]"


@pytest.mark.parametrize(
    "name, listed",
    [
        ("FullyConnected", {
            "data": "NDArray-or-Symbol", "weight": "NDArray-or-Symbol", "bias": "NDArray-or-Symbol",
            "num_hidden": "int, required", "no_bias": "boolean, optional, default=0",
            "flatten": "boolean, optional, default=1",
        }),
        ("LeakyReLU", {
            "data": "NDArray-or-Symbol", "gamma": "NDArray-or-Symbol",
            "act_type": "{'elu', 'gelu', 'leaky', 'prelu', 'rrelu', 'selu'},optional, default='leaky'",
            "slope": "float, optional, default=0.25", "lower_bound": "float, optional, default=0.125",
            "upper_bound": "float, optional, default=0.333999991",
        }),
        ("SVMOutput", {
            "data": "NDArray-or-Symbol", "label": "NDArray-or-Symbol", "margin": "float, optional, default=1",
            "regularization_coefficient": "float, optional, default=1",
            "use_linear": "boolean, optional, default=0",
        }),
        ("GridGenerator", {
            "data": "NDArray-or-Symbol", "transform_type": "{'affine', 'warp'}, required",
            "target_shape": "Shape(tuple), optional, default=[0,0]",
        }),
        ("argmax", {
            "data": "NDArray-or-Symbol", "axis": "int or None, optional, default='None'",
            "keepdims": "boolean, optional, default=0",
        }),
    ],
)  # fmt: skip
def test_the_types_of_arguments_are_worded_as_mxnet_does(name, listed):
    """These are what MXNet 1.9.1 lists."""
    assert mx.operator.get_operator_arguments(name) == (len(listed), list(listed), list(listed.values()))


def test_images_have_the_module_that_mxnet_has_beside_detection():
    assert mx.img.image.imread is mx.image.imread


def test_what_is_read_has_the_names_of_mxnet():
    names = []
    executor = _net().simple_bind(mx.cpu(), data=(4, 5))
    executor.set_monitor_callback(lambda name, array: names.append(name), monitor_all=True)
    executor.forward(is_train=True)
    assert names == (
        "data fc1_data fc1_weight fc1_weight fc1_bias fc1_bias fc1_output bn_data bn_gamma bn_gamma "
        "bn_beta bn_beta bn_moving_mean bn_moving_mean bn_moving_var bn_moving_var bn_output bn_mean bn_var "
        "act_input0 act_output fc2_data fc2_weight fc2_weight fc2_bias fc2_bias fc2_output softmax_data "
        "softmax_label softmax_label softmax_output"
    ).split()  # fmt: skip


def test_a_callback_on_a_modules_executor_sees_its_passes():
    module, names = _bound(), []
    module._exec_group.execs[0].set_monitor_callback(lambda name, array: names.append(name))
    module.forward(_batch(), is_train=True)
    module.backward()
    assert names[:4] == ["fc1_output", "bn_output", "bn_mean", "bn_var"]
    assert "fc2_backward_output1" in names


# -- executors and modules


def test_debug_str_ends_with_the_two_lines_that_memonger_reads():
    """The numbers are those of the plan: bytes of the arena, and steps with scratch."""
    net = mx.sym.Variable("data")
    for i in range(3):
        net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=32, name=f"c{i}")
    executor = mx.sym.sum(net).simple_bind(mx.cpu(), data=(8, 32, 48, 48))
    *_, allocated, scratch = executor.debug_str().split("\n")
    plan = executor.memory_plan
    assert allocated == f"Total {plan.arena_bytes >> 20} MB allocated" and plan.arena_bytes >> 20 >= 2
    count = sum(plan.problem.tasks[t].workspace > 0 for t in plan.schedule.task)
    assert scratch == f"Total {count} TempSpace resource requested" and totals(plan)[1] == scratch


def test_each_of_several_cpus_takes_the_statistics_of_its_part_and_parameters_are_their_means():
    both = _bound([mx.cpu(0), mx.cpu(1)])
    assert both._context == [mx.cpu(0), mx.cpu(1)]
    args = {n: a.asnumpy() for n, a in both.get_params()[0].items()}
    both.forward_backward(_batch())
    given = _batch().data[0].asnumpy() @ args["fc1_weight"].T + args["fc1_bias"]
    means = [0.1 * given[part].mean(0) for part in (slice(2), slice(2, 4))]
    states = dict(zip(both._exec_group.aux_names, both._exec_group.aux_arrays))
    for state, mean in zip(states["bn_moving_mean"], means, strict=True):
        np.testing.assert_allclose(state.asnumpy(), mean, rtol=1e-4, atol=1e-6)
    found = both.get_params()[1]["bn_moving_mean"].asnumpy()
    np.testing.assert_allclose(found, sum(means) / 2, rtol=1e-4, atol=1e-6)
    with pytest.raises(mx.MXLiteError, match="one device, or on several CPUs"):
        mx.mod.Module(_net(), context=[mx.gpu(0), mx.gpu(1)])


def test_the_default_device_is_that_of_the_block():
    assert mx.Context.default_ctx == mx.cpu(0)
    with mx.cpu(3):
        assert mx.Context.default_ctx == mx.current_context() == mx.cpu(3)
    assert mx.Context.default_ctx == mx.cpu(0)


def test_groups_lie_on_the_devices_of_mxnet():
    """The contexts, and which of these binds are refused, are what MXNet 1.9.1 was seen to give."""
    with mx.AttrScope(ctx_group="a"):
        x = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=3, name="f1")
    x = mx.sym.Activation(x, act_type="tanh", name="u")
    with mx.AttrScope(ctx_group="b"):
        x = mx.sym.FullyConnected(x, num_hidden=2, name="f2")
    net = mx.sym.broadcast_mul(mx.sym.Variable("w"), x, name="m")
    groups = {"a": mx.cpu(1), "b": mx.cpu(2)}
    executor = net.simple_bind(mx.cpu(0), group2ctx=groups, x=(4, 5), w=(1, 2))
    assert {n: a.context.device_id for n, a in executor.arg_dict.items()} == {
        "w": 0, "x": 1, "f1_weight": 1, "f1_bias": 1, "f2_weight": 2, "f2_bias": 2
    }  # fmt: skip
    assert all(g.context == executor.arg_dict[n].context for n, g in executor.grad_dict.items())
    assert executor.outputs[0].context == mx.cpu(0)
    for more in ({}, {**groups, "nobody": mx.cpu(3)}):
        net.simple_bind(mx.cpu(0), group2ctx=more, x=(4, 5), w=(1, 2))
    with pytest.raises(mx.MXLiteError, match="'b', for which group2ctx has no device"):
        net.simple_bind(mx.cpu(0), group2ctx={"a": mx.cpu(1)}, x=(4, 5), w=(1, 2))


def test_a_label_that_is_taken_for_a_parameter_is_named():
    net = mx.sym.SoftmaxOutput(mx.sym.Variable("data"), mx.sym.Variable("y"), name="softmax")
    with pytest.raises(mx.BindError, match=r"label_shapes has 'y'.*label_names=\('y',\)"):
        mx.mod.Module(net).bind([("data", (4, 3))], [("y", (4,))])


# -- the rest


def test_mnist_gives_arrays_where_mxnet_does(tmp_path):
    (tmp_path / "images").write_bytes(struct.pack(">IIII", 2051, 8, 4, 4) + bytes(range(128)))
    (tmp_path / "labels").write_bytes(struct.pack(">II", 2049, 8) + bytes(range(8)))
    given = {"image": tmp_path / "images", "label": tmp_path / "labels", "batch_size": 2, "shuffle": False}
    iterator = mx.io.MNISTIter(**given, silent=True)
    assert iterator.iter_next()
    assert iterator.getdata().shape == (2, 1, 4, 4)
    assert iterator.getlabel().asnumpy().tolist() == [0, 1]
    batch = iterator.next()
    assert [a.shape for a in batch.data] == [(2, 1, 4, 4)] and batch.label[0].asnumpy().tolist() == [2, 3]
    assert len(list(iterator)) == 2


def test_a_drawing_warns_of_nodes_of_one_name():
    pytest.importorskip("graphviz")
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    twice = mx.sym.FullyConnected(x, num_hidden=2, name="fc")
    with pytest.warns(UserWarning, match="same name.*fc, fc_bias, fc_weight"):
        mx.viz.plot_network(twice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.viz.plot_network(x)


def test_the_profilers_json_has_the_form_of_mxnet():
    mx.profiler.set_config(aggregate_stats=True)
    mx.profiler.set_state("run")
    (mx.nd.ones((3, 3)).sqrt() + 1).asnumpy()
    mx.nd.ones((3, 3)).sqrt().asnumpy()
    mx.profiler.set_state("stop")
    found = json.loads(mx.profiler.dumps(reset=True, format="json"))
    assert found["Unit"] == {"Time": "ms", "Memory": "kB"} and found["Memory"] == {}
    row = found["Time"]["operator"]["sqrt"]
    assert row["Count"] == 2 and row["Min"] <= row["Avg"] <= row["Max"]
    assert row["Total"] == pytest.approx(2 * row["Avg"])


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("np", "mx.nd"),
        ("npx", "mx.sym"),
        ("contrib.amp.init", "amp='bfloat16'"),
        ("contrib.tensorboard", "fit"),
    ],
)
def test_parts_of_mxnet_that_are_not_there_say_what_is(name, instead):
    with pytest.raises(AttributeError, match=rf"mxlite has no mx\.{name}: .*{instead}"):
        operator.attrgetter(name)(mx)
    assert not hasattr(mx, "npx")
    with pytest.raises(AttributeError, match=r"mx has no 'symbl'\. Did you mean 'symbol'"):
        mx.symbl  # noqa: B018


def test_scopes_and_managers_can_be_set_as_old_programs_do():
    mx.AttrScope.current = mx.AttrScope(y="hi")
    assert mx.sym.Variable("a").attr("y") == "hi" and mx.AttrScope.current._attr == {"y": "hi"}
    mx.AttrScope.current = mx.AttrScope()
    before = mx.name.NameManager.current
    mx.name.NameManager.current = mx.name.NameManager()
    assert mx.sym.relu(mx.sym.Variable("a")).name == "relu0"
    mx.name.NameManager.current = before


def test_an_array_says_whether_its_gradient_is_new():
    x = mx.nd.ones(3)
    assert not x._fresh_grad
    x.attach_grad()
    with mx.autograd.record():
        y = (x * 2).sum()
    assert not x._fresh_grad
    y.backward()
    assert x._fresh_grad
    x._fresh_grad = False
    assert not x._fresh_grad


# -- what tests of operators import


def test_environment_gives_back_what_was(monkeypatch):
    from mxlite.test_utils import environment

    monkeypatch.setenv("MXLITE_A_TEST", "1")
    with pytest.raises(ZeroDivisionError), environment({"MXLITE_A_TEST": None, "MXLITE_B_TEST": 2}):
        assert mx.util.getenv("MXLITE_A_TEST") is None and mx.util.getenv("MXLITE_B_TEST") == "2"
        raise ZeroDivisionError
    assert mx.util.getenv("MXLITE_A_TEST") == "1" and mx.util.getenv("MXLITE_B_TEST") is None


def test_generators_are_verified_by_chi_square():
    from mxlite.test_utils import gen_buckets_probs_with_ppf, mean_check, var_check, verify_generator

    rng = np.random.default_rng(0)
    buckets, probs = gen_buckets_probs_with_ppf(lambda p: p, 5)
    assert buckets[0] == (0, 0.2) and probs == [0.2] * 5
    assert len(verify_generator(rng.random, buckets, probs, nsamples=10000)) == 5
    with pytest.raises(AssertionError, match="0 of 5 chi-square tests passed"):
        verify_generator(lambda n: rng.random(n) ** 1.2, buckets, probs, nsamples=10000)
    dice = {"buckets": [0, 1, 2], "probs": [0.5, 0.25, 0.25], "nsamples": 10000}
    assert verify_generator(lambda n: np.maximum(rng.integers(-1, 3, n), 0), **dice)
    assert mean_check(rng.standard_normal, 0, 1, 10000) and not mean_check(rng.random, 0, 1, 10000)
    assert var_check(rng.standard_normal, 1, 10000) and not var_check(rng.standard_normal, 2, 10000)


def test_sparse_arrays_of_tests_are_uniform_with_the_density_asked_for():
    from mxlite.test_utils import rand_ndarray, rand_sparse_ndarray

    dense = rand_ndarray((40, 50), "csr", density=0.25).asnumpy()
    assert np.count_nonzero(dense) == 500 and dense.min() >= 0 and dense.max() < 1
    law, _ = rand_sparse_ndarray((4, 40), "csr", density=0.2, distribution="powerlaw")
    counts = np.count_nonzero(law.asnumpy(), axis=1)
    assert counts.tolist()[:3] == [2, 4, 8] and counts.sum() == 32
    with pytest.raises(mx.MXLiteError, match="at least two elements a row"):
        rand_sparse_ndarray((4, 40), "csr", density=0.01, distribution="powerlaw")


def test_features_are_asked_for_by_name():
    features = mx.runtime.Features()
    assert features is mx.runtime.Features() and "CUDA" in features and features.is_enabled("openmp")
    with pytest.raises(RuntimeError, match="No feature is called 'CUDNA'"):
        features.is_enabled("CUDNA")


# -- the alias


def _alias(folder, *arguments):
    command = [sys.executable, "-m", "mxlite", "alias", "--into", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_alias_gives_the_same_modules_and_goes_away(tmp_path):
    assert _alias(tmp_path).returncode == 0
    program = (
        "import mxnet as mx, mxlite, sys\n"
        "from mxnet.io import NDArrayIter\n"
        "import mxnet.module.executor_group, mxnet.optimizer.optimizer, mxnet.cli.words\n"
        "assert mx.io is mxlite.io and NDArrayIter is mxlite.io.NDArrayIter\n"
        "assert sys.modules['mxnet.cli.words'] is sys.modules['mxlite.cli.words']\n"
        "assert mxlite.cli.words.__spec__.name == 'mxlite.cli.words'\n"
        "names = {id(m): n for n, m in sys.modules.items() if n.startswith('mxlite.')}\n"
        "assert all(id(m) in names for n, m in sys.modules.items() if n.startswith('mxnet.'))\n"
    )
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n{program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert _alias(tmp_path, "--remove").returncode == 0
    assert not (tmp_path / "mxnet").exists()


def test_the_alias_replaces_no_mxnet(tmp_path):
    real = tmp_path / "mxnet" / "__init__.py"
    real.parent.mkdir()
    real.write_text("__version__ = '1.9.1'\n")
    with pytest.raises(mx.StateError, match="not of mxlite"):
        alias.write(tmp_path)
    with pytest.raises(mx.StateError, match="it stays"):
        alias.remove(tmp_path)
    assert real.read_text() == "__version__ = '1.9.1'\n"


def test_the_alias_refuses_where_mxnet_is_elsewhere_on_the_path(tmp_path, monkeypatch):
    real = tmp_path / "site" / "mxnet" / "__init__.py"
    real.parent.mkdir(parents=True)
    real.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(mx.StateError, match="depend on the order"):
        alias.write(tmp_path / "other")
