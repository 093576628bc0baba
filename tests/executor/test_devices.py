"""Programs on several devices, by `group2ctx`: the same bits as on one, and a plan that is kept on each."""

import re

import numpy as np
import pytest

import mxlite as mx
from mxlite.engine import use_engine
from mxlite.executor.run.segment import Segment
from tests.networks.grouped_networks import group, lstm, there_and_back

TWO = {"a": mx.cpu(0), "b": mx.cpu(1)}
LAYERS = {"embed": mx.cpu(0), "layer0": mx.cpu(0), "layer1": mx.cpu(1), "decode": mx.cpu(1)}
SHAPES = {"data": (8, 10), "softmax_label": (8,)}
WORDS = {"data": (4, 4), "softmax_label": (4, 4)}


def filled(executor, seed=0):
    draw = np.random.default_rng(seed)
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        whole = name.endswith("label") or array.shape == WORDS["data"]
        array[:] = draw.integers(0, 4, array.shape) if whole else draw.uniform(-0.5, 1, array.shape)
    for gradient in executor.grad_dict.values():
        if gradient is not None:
            gradient[:] = 1
    return executor


def bound(net, groups, shapes, ctx=None, **how):
    return filled(net.simple_bind(ctx or mx.cpu(0), group2ctx=groups, **shapes, **how))


def trained(executor, steps=3):
    """Everything that a user can see after some steps and a pass of inference."""
    mx.random.seed(7)
    for step in range(steps):
        if executor.updated:
            executor.step(np.tile([0.1, 0.01], (len(executor.updated), 1)))
        elif step % 2:
            executor.forward_backward()
        else:
            executor.forward(is_train=True)
            executor.backward()
    seen = {f"trained{i}": o.asnumpy() for i, o in enumerate(executor.outputs)}
    executor.forward(is_train=False)
    seen |= {f"inferred{i}": o.asnumpy() for i, o in enumerate(executor.outputs)}
    seen |= {n: a.asnumpy() for n, a in {**executor.arg_dict, **executor.aux_dict}.items()}
    seen |= {f"state {n}": a.asnumpy() for n, a in executor.optimizer_states.items()}
    return seen | {f"d_{n}": g.asnumpy() for n, g in executor.grad_dict.items() if g is not None}


def same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


def kept(executor):
    """The plan of each device is sound and takes what it says."""
    for device in executor.devices:
        mx.memplan.check(device.memory_plan, device.memory_plan.predecessors)
        assert device.planned_bytes == device.measured_bytes, device.context


def optimizer(name):
    return {None: lambda: None, "sgd": lambda: mx.optimizer.SGD(momentum=0.9), "adam": mx.optimizer.Adam}[
        name
    ]()


@pytest.mark.parametrize(
    "made, groups, shapes, how",
    [
        (there_and_back, TWO, SHAPES, None),
        (there_and_back, TWO, SHAPES, "adam"),
        (lstm, LAYERS, WORDS, "sgd"),
        (lstm, LAYERS, WORDS, "add"),
    ],
)
def test_several_devices_have_the_bits_of_one_at_every_budget(made, groups, shapes, how):
    net, rule = made(), None if how == "add" else how
    more = {"grad_req": "add"} if how == "add" else {}
    expected = trained(bound(net, None, shapes, optimizer=optimizer(rule), **more))
    free = bound(net, groups, shapes, optimizer=optimizer(rule), **more)
    assert [d.context for d in free.devices] == [mx.cpu(0), mx.cpu(1)]
    same(expected, trained(free))
    kept(free)
    with pytest.raises(mx.MemoryBudgetError, match=r"^cpu\([01]\): No plan fits") as refused:
        bound(net, groups, shapes, memory_budget=2000, optimizer=optimizer(rule), **more)
    least = refused.value.least_feasible_bytes
    tight = bound(net, groups, shapes, memory_budget=least, optimizer=optimizer(rule), **more)
    assert max(d.planned_bytes for d in tight.devices) <= least < max(d.planned_bytes for d in free.devices)
    same(expected, trained(tight))
    kept(tight)


@pytest.mark.parametrize("engine", ["threaded", "naive"])
@pytest.mark.parametrize("bulk", [1, 64])
def test_bits_do_not_depend_on_the_engine(engine, bulk, monkeypatch):
    monkeypatch.setenv("MXLITE_BULK_SIZE", str(bulk))
    with use_engine(engine):
        same(trained(bound(lstm(), None, WORDS)), trained(bound(lstm(), LAYERS, WORDS)))


def test_terms_of_a_gradient_are_added_in_the_order_of_one_device():
    x = mx.sym.Variable("data")
    with group("b"):
        product = mx.sym.elemwise_mul(x, mx.sym.sin(x))
    net = mx.sym.MakeLoss(mx.sym.elemwise_add(product, mx.sym.exp(x)))
    one, two = (bound(net, groups, {"data": (40, 50)}) for groups in (None, TWO))
    same(trained(one), trained(two))


def test_mixed_precision_and_a_loss_scale_span_devices():
    how = dict(amp="float16", loss_scale="dynamic", optimizer=mx.optimizer.SGD(momentum=0.9))
    one, two = (bound(lstm(), groups, WORDS, **how) for groups in (None, LAYERS))
    same(trained(one), trained(two))
    assert one.scale_history == two.scale_history
    kept(two)


# -- where things are ------------------------------------------------------------------------------


def test_a_node_without_a_group_is_where_its_first_input_is():
    with group("a"):
        x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    first, second = mx.sym.relu(x, name="r"), mx.sym.broadcast_mul(mx.sym.Variable("w"), x, name="m")
    executor = mx.sym.Group([first, second]).simple_bind(
        mx.cpu(0), group2ctx={"a": mx.cpu(1)}, data=(2, 4), w=(1, 3)
    )
    assert [o.context for o in executor.outputs] == [mx.cpu(1), mx.cpu(0)]
    assert {n: a.context.device_id for n, a in executor.arg_dict.items()} == {
        "data": 1, "fc_weight": 1, "fc_bias": 1, "w": 0
    }  # fmt: skip
    assert all(g.context == executor.arg_dict[n].context for n, g in executor.grad_dict.items())


def test_states_are_where_they_are_changed_and_gradients_of_the_optimizer_where_its_weight_is():
    state = mx.sym.Variable("mean"), mx.sym.Variable("var")  # in no group
    with group("b"):
        x = mx.sym.BatchNorm(mx.sym.Variable("data"), moving_mean=state[0], moving_var=state[1], name="bn")
    net = mx.sym.MakeLoss(mx.sym.FullyConnected(x, num_hidden=2, weight=mx.sym.Variable("w"), name="fc"))
    executor = net.simple_bind(mx.cpu(0), group2ctx=TWO, data=(4, 3), optimizer=mx.optimizer.Adam())
    assert {a.context for a in executor.aux_dict.values()} == {mx.cpu(1)}
    states = executor.optimizer_states
    assert states["w:mean"].context == mx.cpu(0) and states["bn_gamma:mean"].context == mx.cpu(1)
    alone = net.simple_bind(mx.cpu(0), data=(4, 3), optimizer=mx.optimizer.Adam())
    same(trained(filled(alone)), trained(filled(executor)))


@pytest.mark.parametrize("rule", [None, "sgd", "adam"])
@pytest.mark.parametrize("kind", ["table", "csr"])
def test_rows_that_a_gradient_reaches_are_known_across_devices(kind, rule):
    """The weight and the results are on another device than the operator that touches rows alone."""
    weight = mx.sym.Variable("w", stype="row_sparse", shape=(11, 8))
    with group("b"):
        if kind == "table":
            data = mx.sym.Variable("data")
            x = mx.sym.Embedding(data, weight, input_dim=11, output_dim=8, sparse_grad=True, name="table")
        else:
            x = mx.sym.dot(mx.sym.Variable("data", stype="csr"), weight)
    net = mx.sym.MakeLoss(mx.sym.broadcast_mul(mx.sym.Variable("scale"), x))
    shapes = {
        "table": {"data": (3,), "scale": (1, 1)},
        "csr": {"data": (3, 11), "scale": (1, 1)},
    }[kind]
    requests = {"w": "write", "scale": "write"}
    one, two = (
        bound(net, groups, shapes, optimizer=optimizer(rule), grad_req=requests) for groups in (None, TWO)
    )
    for executor in (one, two) if kind == "csr" else ():
        executor.arg_dict["data"][:] = np.eye(3, 11)
    same(trained(one), trained(two))
    assert (two.outputs[0].context, two.arg_dict["w"].context) == (mx.cpu(0), mx.cpu(0))
    assert type(two.grad_dict["w"]) is type(one.grad_dict["w"])
    lazy = [t.op for d in two.devices for t in d.memory_plan.problem.tasks if t.op.startswith("_lazy")]
    assert bool(lazy) == (rule is not None)


def test_a_transfer_of_one_value_serves_all_its_readers_on_a_device():
    with group("a"):
        x = mx.sym.tanh(mx.sym.Variable("data"), name="x")
    with group("b"):
        net = mx.sym.MakeLoss(mx.sym.exp(x) + mx.sym.sin(x) * x)
    executor = net.simple_bind(mx.cpu(0), group2ctx=TWO, grad_req="null", data=(4, 3))
    ops = [[t.op for t in d.memory_plan.problem.tasks] for d in executor.devices]
    assert ops[0].count("_send_to_device") == ops[1].count("_receive_from_device") == 1


def test_what_is_not_in_the_network_has_no_device():
    """A group that no node is in, and a device on which nothing is left."""
    with group("b"):
        net = mx.sym.MakeLoss(mx.sym.tanh(mx.sym.Variable("data")))
    executor = net.simple_bind(mx.cpu(0), group2ctx={**TWO, "c": mx.cpu(2)}, data=(4, 3))
    same(trained(filled(net.simple_bind(mx.cpu(0), data=(4, 3)))), trained(filled(executor)))
    kept(executor)
    assert [d.planned_bytes > 0 for d in executor.devices] == [False, True, False]


def test_arrays_of_the_user_are_used_where_they_lie():
    net = lstm()
    shapes = dict(zip(net.list_arguments(), net.infer_shape(**WORDS)[0]))
    found = []
    for groups, other in ((None, mx.cpu(0)), (LAYERS, mx.cpu(1))):
        args = {n: mx.nd.zeros(s, ctx=other if n.startswith("l1") else mx.cpu(0)) for n, s in shapes.items()}
        grads = {n: mx.nd.zeros(a.shape, ctx=a.context) for n, a in args.items()}
        executor = filled(net.bind(mx.cpu(0), args, grads, group2ctx=groups))
        assert executor.arg_dict["l1_i2h_bias"] is args["l1_i2h_bias"]
        found.append(trained(executor))
        kept(executor)
    same(*found)
    grads["l1_i2h_bias"] = mx.nd.zeros(grads["l1_i2h_bias"].shape)
    with pytest.raises(mx.MXLiteError, match=r"'l1_i2h_bias' is on cpu\(1\), its gradient on cpu\(0\)"):
        net.bind(mx.cpu(0), args, grads, group2ctx=LAYERS)
    args["pred_bias"] = mx.nd.zeros(shapes["pred_bias"], ctx=mx.cpu(7))
    with pytest.raises(
        mx.MXLiteError, match=r"'pred_bias' lies on cpu\(7\), which is none of .*cpu\(0\), cpu\(1\)"
    ):
        net.bind(mx.cpu(0), args, group2ctx=LAYERS)


# -- other ways to bind and look -------------------------------------------------------------------


def test_executors_share_what_lies_on_the_same_device():
    first = bound(lstm(), LAYERS, WORDS)
    small = {"data": (2, 4), "softmax_label": (2, 4)}
    for other in (
        first.reshape(**small),
        lstm().simple_bind(mx.cpu(0), group2ctx=LAYERS, shared_exec=first, **small),
    ):
        assert other.arg_dict["l1_i2h_weight"] is first.arg_dict["l1_i2h_weight"]
        other.forward(is_train=True, data=np.ones((2, 4)), softmax_label=np.ones((2, 4)))
        other.backward()
        alone = lstm().simple_bind(mx.cpu(0), **small)
        alone.copy_params_from({n: a for n, a in first.arg_dict.items() if n not in small})
        alone.forward(is_train=True, data=np.ones((2, 4)), softmax_label=np.ones((2, 4)))
        alone.backward()
        for name, gradient in alone.grad_dict.items():
            np.testing.assert_array_equal(other.grad_dict[name].asnumpy(), gradient.asnumpy(), err_msg=name)
        assert [a.block is b.block for a, b in zip(other._arena.of_devices, first._arena.of_devices)] == [
            True
        ] * 2
    swapped = {**LAYERS, "layer1": mx.cpu(0)}
    with pytest.raises(
        mx.MXLiteError, match=r"shared_exec has 'l1_.*' on cpu\(1\), but here it would be on cpu\(0\)"
    ):
        lstm().simple_bind(mx.cpu(0), group2ctx=swapped, shared_exec=first, **WORDS)
    one = lstm().simple_bind(mx.cpu(0), shared_exec=first, **WORDS)  # on one device all of it is the CPU's
    same(trained(filled(one)), trained(filled(first)))


def test_a_monitor_sees_the_results_of_all_devices():
    seen = [{}, {}]
    for values, groups in zip(seen, (None, TWO)):
        executor = bound(there_and_back(), groups, SHAPES)
        mx.random.seed(1)
        executor.set_monitor_callback(
            lambda name, array, values=values: values.__setitem__(name, array.asnumpy())
        )
        executor.forward(is_train=True)
        executor.backward()
        kept(executor)
    same(*seen)
    assert {"t1_output", "t2_output", "f1_backward_output1"} <= seen[0].keys()


def test_plans_are_told_without_arrays_and_name_their_devices():
    plans = lstm().memory_plans(LAYERS, mx.cpu(0), optimizer=mx.optimizer.Adam(), **WORDS)
    executor = bound(lstm(), LAYERS, WORDS, optimizer=mx.optimizer.Adam())
    assert {d.context: d.planned_bytes for d in executor.devices} == {
        c: p.peak_bytes for c, p in plans.items()
    }
    text = executor.debug_str()
    assert "cpu(0):" in text and "cpu(1):" in text and "to and from devices" in text
    on_gpus = {n: mx.gpu(c.device_id) for n, c in LAYERS.items()}
    assert list(lstm().memory_plans(on_gpus, mx.gpu(0), **WORDS)) == [mx.gpu(0), mx.gpu(1)]
    with pytest.raises(mx.MXLiteError, match=r"'layer1' on gpu\(1\), and the program is on gpu\(0\)"):
        lstm().simple_bind(mx.gpu(0), group2ctx=on_gpus, **WORDS)
    with pytest.raises(mx.MXLiteError, match="plan= is for a program on one device, but group2ctx names 2"):
        lstm().simple_bind(mx.cpu(0), group2ctx=LAYERS, plan=plans[mx.cpu(0)], **WORDS)
    with pytest.raises(mx.MXLiteError, match="over 2 devices, and ranks= over 2 processes"):
        lstm().simple_bind(mx.cpu(0), group2ctx=LAYERS, ranks=2, **WORDS)


def test_a_smaller_batch_that_helps_the_second_device_is_told():
    with group("a"):
        x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    with group("b"):
        for i in range(3):
            x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=32), act_type="tanh", name=f"t{i}")
        net = mx.sym.SoftmaxOutput(x, name="softmax")

    def bind(batch):
        return net.simple_bind(mx.cpu(0), group2ctx=TWO, memory_budget=60_000, data=(batch, 4))

    with pytest.raises(mx.MemoryBudgetError, match=r"^cpu\(1\): ") as refused:
        bind(256)
    found = re.search(r"batch (\d+) instead of 256 .*: fits", str(refused.value))
    assert found and max(d.planned_bytes for d in bind(int(found[1])).devices) <= 60_000


def test_a_state_of_two_devices_is_refused():
    state = mx.sym.Variable("mean"), mx.sym.Variable("var")
    x = mx.sym.Variable("data")
    for name in ("a", "b"):
        with group(name):
            x = mx.sym.BatchNorm(x, moving_mean=state[0], moving_var=state[1], name=f"bn_{name}")
    with pytest.raises(
        mx.MXLiteError, match=r"'mean' is changed by 'bn_a' on cpu\(0\) and by 'bn_b' on cpu\(1\)"
    ):
        x.simple_bind(mx.cpu(0), group2ctx=TWO, data=(4, 3))


# -- running ---------------------------------------------------------------------------------------


def test_devices_run_at_once(monkeypatch):
    """A segment of each of two towers waits until the other's has begun: one after another, they fail."""
    from threading import Barrier

    meeting, met = Barrier(2, timeout=20), []
    run = Segment.__call__

    def watched(self):
        if any(name in ("tower_a", "tower_b") for name in self.names):
            met.append(meeting.wait())
        run(self)

    x = mx.sym.Variable("data")
    towers = []
    for name in ("a", "b"):
        with group(name):
            towers.append(mx.sym.tanh(x, name=f"tower_{name}"))
    net = mx.sym.MakeLoss(towers[0] + towers[1])
    monkeypatch.setattr(Segment, "__call__", watched)
    with use_engine("threaded"):
        executor = net.simple_bind(mx.cpu(0), group2ctx=TWO, grad_req="null", data=(4, 3))
        executor.forward()
        assert executor.outputs[0].asnumpy().shape == (4, 3) and sorted(met) == [0, 1]


def test_an_error_on_one_device_reaches_what_the_other_makes_of_it():
    class Failing(mx.operator.CustomOp):
        fails = True

        def forward(self, is_train, req, in_data, out_data, aux):
            if self.fails:
                raise ValueError("no luck")
            self.assign(out_data[0], req[0], in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0])

    class FailingProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Failing()

    mx.operator.register("fails_on_a_device")(FailingProp)
    with group("a"):
        x = mx.sym.Custom(mx.sym.Variable("data"), op_type="fails_on_a_device", name="broken")
    with group("b"):
        net = mx.sym.MakeLoss(mx.sym.exp(x))
    executor = net.simple_bind(mx.cpu(0), group2ctx=TWO, data=(2, 2))
    executor.forward(is_train=True)
    with pytest.raises(mx.MXLiteError, match=r"'broken' failed with .* with ValueError: no luck"):
        executor.outputs[0].asnumpy()
    Failing.fails = False
    executor.forward(is_train=True, data=np.zeros((2, 2)))
    executor.backward()
    assert (
        executor.outputs[0].asnumpy().tolist()
        == executor.grad_dict["data"].asnumpy().tolist()
        == [[1, 1]] * 2
    )


def test_rewrites_of_parts_are_checked(monkeypatch):
    monkeypatch.setenv("MXLITE_CHECK_REWRITES", "1")
    monkeypatch.setenv("MXLITE_CHECK_PLAN", "1")
    monkeypatch.setenv("MXLITE_GUARD", "1")
    same(trained(bound(there_and_back(), None, SHAPES)), trained(bound(there_and_back(), TWO, SHAPES)))


def test_the_loop_of_mxnets_model_parallel_example_learns_the_same():
    """Arrays are made on the devices of their groups, gradients add up, and the loop steps the weights."""
    found = []
    for groups in (None, LAYERS):
        net = lstm()
        attributes, place = net.attr_dict(), groups or {}
        draw, args, grads = np.random.default_rng(3), {}, {}
        for name, shape in zip(net.list_arguments(), net.infer_shape(**WORDS)[0]):
            ctx = place.get(attributes.get(name, {}).get("ctx_group"), mx.cpu(0))
            args[name] = mx.nd.array(draw.uniform(-0.3, 0.3, shape), ctx=ctx)
            if name not in WORDS:
                grads[name] = mx.nd.zeros(shape, ctx=ctx)
        executor = net.bind(mx.cpu(0), args, args_grad=grads, grad_req="add", group2ctx=groups)
        words, losses = mx.nd.array(draw.integers(0, 11, WORDS["data"])), []
        for _ in range(12):
            for _ in range(2):  # batches
                executor.forward(is_train=True, data=words, softmax_label=words)
                executor.backward()
            for name, grad in grads.items():
                args[name] -= 0.05 * grad / (grad.norm() + 1).asscalar()
                grad[:] = 0
            right = np.take_along_axis(
                executor.outputs[0].asnumpy(), words.asnumpy().astype(int).reshape(-1, 1), 1
            )
            losses.append(-np.log(right).mean())
        assert losses[-1] < losses[0] - 0.05
        found.append({"losses": np.array(losses)} | {n: a.asnumpy() for n, a in args.items()})
    same(*found)
