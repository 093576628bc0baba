"""Monitors see inner results and gradients; what they see is planned, and changes nothing else."""

import gc

import numpy as np
import pytest

import mxlite as mx


def residual(blocks=3):
    data = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=4, name="stem")
    for i in range(blocks):
        more = mx.sym.BatchNorm(data, fix_gamma=False, name=f"bn{i}")
        more = mx.sym.Activation(more, act_type="relu", name=f"relu{i}")
        more = mx.sym.Dropout(more, p=0.2, name=f"drop{i}")
        data = data + mx.sym.Convolution(
            more, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True, name=f"conv{i}"
        )
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=3, name="fc"), name="softmax"
    )


SHAPES = {"data": (4, 2, 6, 6), "softmax_label": (4,)}


def bound(budget=None, blocks=3):
    net = residual(blocks)
    names = [n for n in net.list_arguments() if n not in SHAPES]
    exe = net.simple_bind(mx.cpu(), dict.fromkeys(names, "write"), memory_budget=budget, **SHAPES)
    draw = np.random.RandomState(1)
    for array in exe.arg_dict.values():
        array[:] = draw.rand(*array.shape) - 0.3
    for name, array in exe.aux_dict.items():
        array[:] = float(name.endswith("var"))
    exe.arg_dict["softmax_label"][:] = [0, 2, 1, 1]
    return exe


def step(exe):
    mx.random.seed(3)
    exe.forward(is_train=True)
    exe.backward()
    grads = {n: g.asnumpy().copy() for n, g in exe.grad_dict.items() if g is not None}
    return grads, exe.outputs[0].asnumpy().copy()


def watch(exe, **options):
    seen = {}
    exe.set_monitor_callback(lambda name, array: seen.__setitem__(name, array.asnumpy().copy()), **options)
    return seen


def test_a_watched_executor_shows_what_its_internals_give():
    exe = bound()
    seen = watch(exe)
    grads, _ = step(exe)
    mx.random.seed(3)
    internals = residual().get_internals()
    other = internals.bind(
        mx.cpu(), {n: exe.arg_dict[n] for n in internals.list_arguments()}, aux_states=exe.aux_dict.copy()
    )
    expected = dict(zip(internals.list_outputs(), other.forward(is_train=True)))
    for name in ("stem_output", "bn2_output", "relu2_output", "drop1_output", "conv0_output", "fc_output"):
        np.testing.assert_allclose(seen[name], expected[name].asnumpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen["fc_backward_output1"], grads["fc_weight"])
    np.testing.assert_array_equal(seen["bn1_backward_output2"], grads["bn1_beta"])
    # Two nodes read the stem: what each sends back is shown, and their sum is the stem's gradient.
    total = seen["bn0_backward_output0"] + seen["bn1_backward_output0"]
    assert total.shape == (4, 4, 6, 6) and "stem_backward_output1" in seen


@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_watching_changes_no_result_and_is_planned(engine):
    with mx.engine.use_engine(engine):
        plain, watched = bound(), bound()
        before = watched.memory_plan.peak_bytes
        seen = watch(watched, pattern=r"relu\d_output|conv.*backward")
        for a, b in zip(step(plain), step(watched)):
            for x, y in zip(*(v.values() if isinstance(v, dict) else [v] for v in (a, b))):
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        assert watched.measured_bytes == watched.memory_plan.peak_bytes > before
        assert sorted(seen) == sorted(
            [f"relu{i}_output" for i in range(3)]
            + [f"conv{i}_backward_output{k}" for i in range(3) for k in (0, 1)]
        )


def test_recomputation_shows_the_same_numbers():
    roomy, pattern = bound(blocks=2), "bn.*_output|drop.*|conv1_backward.*"
    seen = watch(roomy, pattern=pattern)
    expected = step(roomy), dict(seen)
    budget = roomy.memory_plan.peak_bytes - 800
    tight = bound(budget, 2)
    seen = watch(tight, pattern=pattern)
    found = step(tight), dict(seen)
    assert tight.measured_bytes == tight.memory_plan.peak_bytes <= budget
    assert tight.memory_plan.recomputed > 0
    for a, b in ((expected[0][0], found[0][0]), (expected[1], found[1])):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_a_budget_without_room_for_what_is_watched_is_refused():
    plan = bound(blocks=1).memory_plan
    exe = bound(plan.peak_bytes, 1)
    with pytest.raises(mx.MemoryBudgetError):
        exe.set_monitor_callback(print)
    step(exe)
    assert exe.measured_bytes == plan.peak_bytes


def test_one_can_stop_watching_and_look_at_something_else():
    exe = bound()
    first = watch(exe, pattern="fc_output")
    outputs = exe.outputs
    second = watch(exe, pattern="relu0", monitor_all=True)
    exe.forward(is_train=False)
    assert not first and sorted(second) == ["relu0_input0", "relu0_output"]
    assert exe.outputs[0] is outputs[0]
    second.clear()
    exe.set_monitor_callback(None)
    step(exe)
    assert not second and exe.measured_bytes == exe.memory_plan.peak_bytes


def test_a_loss_behind_block_grad_sends_nothing_back_because_it_is_watched():
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("w")
    hidden = mx.sym.FullyConnected(data, weight, num_hidden=3, no_bias=True, name="fc")
    aside = mx.sym.BlockGrad(mx.sym.MakeLoss(mx.sym.sum(hidden, axis=1), name="aside"), name="blocked")
    net = mx.sym.Group([mx.sym.MakeLoss(mx.sym.sum(hidden * 2, axis=1), name="main"), aside])
    grads = []
    for pattern in (None, ".*"):
        exe = net.simple_bind(mx.cpu(), {"w": "write"}, data=(2, 4))
        exe.arg_dict["data"][:] = 1
        if pattern:
            watch(exe, pattern=pattern)
        exe.forward(is_train=True)
        exe.backward()
        grads.append(exe.grad_dict["w"].asnumpy())
    np.testing.assert_array_equal(*grads)


def test_a_reshaped_executor_goes_on_watching():
    exe = bound()
    watch(exe, pattern="relu0_output")
    other = exe.reshape(data=(2, 2, 6, 6), softmax_label=(2,))
    seen = watch(other, pattern="relu0_output")
    other.forward(is_train=True)
    assert seen["relu0_output"].shape == (2, 4, 6, 6)


def images(count=12):
    draw = np.random.RandomState(2)
    return mx.io.NDArrayIter(draw.rand(count, 2, 6, 6), draw.randint(0, 3, count), 4)


def test_a_module_within_a_budget_is_watched_through_rebinding_and_fused_updates():
    budget = 120_000
    monitor = mx.mon.Monitor(2, pattern=".*conv0_weight|relu0_output|fc_backward_output1|bn0_moving_mean")
    module = mx.mod.Module(residual(), memory_budget=budget)
    found = []
    monitor.toc_print = lambda: found.append(monitor.toc())
    module.fit(images(), num_epoch=1, optimizer="adam", monitor=monitor)
    assert module.is_fused
    names = ["relu0_output", "fc_backward_output1", "conv0_weight", "bn0_moving_mean"]
    assert [[n for _, n, _ in entries] for entries in found] == [names, [], names]
    assert found[2][0][0] == 3
    assert module.measured_bytes == module.planned_bytes <= budget
    monitor.tic(), monitor.tic()
    module.forward(mx.io.DataBatch([mx.nd.ones((2, 2, 6, 6))]), is_train=False)
    assert [n for _, n, _ in monitor.toc()] == [names[0], *names[2:]]
    assert len(monitor.exes) == 1
    assert module.measured_bytes == module.planned_bytes <= budget


def test_a_monitor_of_ones_own_gets_everything():
    class Mine:
        def __init__(self):
            self.names = []

        def install(self, exe):
            exe.set_monitor_callback(lambda name, array: self.names.append(name))

    mine, module = Mine(), mx.mod.Module(residual(1))
    module.bind(images().provide_data, images().provide_label)
    module.init_params()
    module.install_monitor(mine)
    module.forward_backward(next(images()))
    assert {"stem_output", "softmax_output", "fc_backward_output1"} <= set(mine.names)


def test_monitors_say_what_is_wrong():
    exe = bound()
    monitor = mx.mon.Monitor(1, stat_func=lambda a: 3, pattern="fc_output")
    monitor.install(exe)
    monitor.tic()
    exe.forward()
    with pytest.raises(mx.StateError, match=r"gave int for 'fc_output'"):
        monitor.toc()
    with pytest.raises(mx.MissingMethodError, match="nothing that a monitor"):
        mx.mod.PythonLossModule().install_monitor(monitor)
    gc.collect()


def test_one_monitor_looks_into_all_modules_of_a_row_and_all_buckets():
    def net(length=4):
        total = mx.sym.sum(mx.sym.Variable("data"), axis=1, keepdims=True)
        layer = mx.sym.FullyConnected(total, num_hidden=3, name="fc")
        return mx.sym.SoftmaxOutput(layer, name="softmax"), ("data",), ("softmax_label",)

    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="first")
    row = mx.mod.SequentialModule().add(mx.mod.Module(first, label_names=None))
    row.add(mx.mod.Module(net()[0]), take_labels=True, auto_wiring=True)
    batches = {
        n: mx.io.DataBatch(
            [mx.nd.ones((2, n))],
            [mx.nd.zeros((2,))],
            bucket_key=n,
            provide_data=[("data", (2, n))],
            provide_label=[("softmax_label", (2,))],
        )
        for n in (4, 3)
    }
    buckets = mx.mod.BucketingModule(net, default_bucket_key=4)
    for module, keys in ((row, (4, 4)), (buckets, (4, 3, 4))):
        monitor = mx.mon.Monitor(1, pattern="first_weight|.*output$|fc_backward_output1")
        module.bind(batches[4].provide_data, batches[4].provide_label)
        module.init_params()
        module.install_monitor(monitor)
        module.init_optimizer()
        for key in keys:
            monitor.tic()
            module.forward_backward(batches[key])
            names = [n for _, n, _ in monitor.toc()]
            assert names[-1] == ("first_weight" if module is row else "fc_backward_output1")
            assert names.count("fc_output") == 1 and "softmax_output" in names
            assert ("first_output" in names) == (module is row)


def test_variables_are_shown_by_their_own_names_before_what_reads_them():
    net = mx.sym.FullyConnected(mx.sym.exp(mx.sym.Variable("x"), name="e"), num_hidden=2, name="fc")
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(1, 3))
    seen = watch(exe, monitor_all=True)
    exe.forward()
    assert list(seen) == ["x", "e_input0", "e_output", "fc_data", "fc_weight", "fc_bias", "fc_output"]
