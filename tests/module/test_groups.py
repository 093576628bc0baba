"""Modules whose groups of nodes are on several devices, against the same modules on one."""

import numpy as np
import pytest

import mxlite as mx
from tests.networks.grouped_networks import lstm

TWO = {"embed": mx.cpu(0), "layer0": mx.cpu(0), "layer1": mx.cpu(1), "decode": mx.cpu(1)}
N, T, WORDS = 4, 3, 11


def iterator(count=10):
    x = np.random.default_rng(0).integers(0, WORDS, (count, T)).astype("float32")
    return mx.io.NDArrayIter(x, x * 3 % WORDS, batch_size=N, label_name="softmax_label")


def parameters(net):
    draw, shapes = np.random.default_rng(1), net.infer_shape(data=(N, T), softmax_label=(N, T))[0]
    named = {n: s for n, s in zip(net.list_arguments(), shapes) if n not in ("data", "softmax_label")}
    return {n: mx.nd.array(draw.uniform(-0.5, 0.5, s)) for n, s in named.items()}


def fitted(groups, optimizer="adam", **how):
    """A module after two epochs with evaluation, and what is seen of it."""
    net = lstm(length=T, words=WORDS)
    module = mx.mod.Module(net, context=mx.cpu(0), group2ctxs=groups, **how)
    mx.random.seed(5)
    module.fit(
        iterator(),
        eval_data=iterator(6),
        num_epoch=2,
        optimizer=optimizer,
        optimizer_params={"learning_rate": 0.05},
        arg_params=parameters(net),
        eval_metric="ce",
    )
    seen = {n: a.asnumpy() for n, a in module.get_params()[0].items()}
    seen["predicted"] = module.predict(iterator()).asnumpy()
    module.forward(mx.io.DataBatch([mx.nd.ones((3, T))], [mx.nd.ones((3, T))]), is_train=True)  # other shapes
    if not module.is_fused:
        module.backward()
    return module, seen | {"other": module.get_outputs()[0].asnumpy()}


def same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


@pytest.mark.parametrize("optimizer, fused", [("adam", True), ("sgd", False)])
def test_a_module_learns_the_same_on_two_devices_within_a_budget_of_each(optimizer, fused):
    _, expected = fitted(None, optimizer, fused_update=fused)
    free, found = fitted(TWO, optimizer, fused_update=fused)
    same(expected, found)
    assert free.is_fused == fused and [d.context for d in free.devices] == [mx.cpu(0), mx.cpu(1)]
    assert all(d.planned_bytes == d.measured_bytes for d in free.devices)
    tight = max(d.planned_bytes for d in free.devices) - 500
    module, found = fitted(TWO, optimizer, fused_update=fused, memory_budget=tight)
    same(expected, found)
    assert all(d.planned_bytes == d.measured_bytes <= tight for d in module.devices)


def test_a_budget_that_is_too_small_names_the_device(quick_refusals):
    module = mx.mod.Module(lstm(2), context=mx.cpu(0), group2ctxs=TWO, memory_budget=4000, fused_update=False)
    with pytest.raises(mx.MemoryBudgetError, match=r"^cpu\([01]\): "):
        module.bind([("data", (N, 2))], [("softmax_label", (N, 2))])


def test_states_of_an_optimizer_beside_the_step_count_where_their_weights_are():
    bytes_of = {}
    for optimizer in ("sgd", "adam"):
        module = mx.mod.Module(lstm(T), context=mx.cpu(0), group2ctxs=TWO, fused_update=False)
        module.bind([("data", (N, T))], [("softmax_label", (N, T))])
        module.init_params()
        module.init_optimizer(optimizer=optimizer)
        bytes_of[optimizer] = [d.planned_bytes for d in module.devices]
    arrays = module._exec_group.execs[0].arg_dict
    for device, sgd, adam in zip((mx.cpu(0), mx.cpu(1)), *bytes_of.values()):
        weights = sum(
            a.size * 4 for n, a in arrays.items() if a.context == device and n in module._param_names
        )
        assert adam - sgd == 2 * weights


def test_parameters_lie_on_the_devices_of_their_groups():
    for fused in (True, False):
        module = mx.mod.Module(lstm(T), context=mx.cpu(0), group2ctxs=TWO, fused_update=fused)
        module.bind([("data", (N, T))], [("softmax_label", (N, T))])
        module.init_params()
        module.init_optimizer()
        where = {n: a.context for n, a in module._exec_group.execs[0].arg_dict.items()}
        assert where["l1_h2h_weight"] == where["pred_bias"] == mx.cpu(1)
        assert where["embed_weight"] == where["l0_i2h_bias"] == where["data"] == mx.cpu(0)


def test_a_checkpoint_of_two_devices_is_read_on_one(tmp_path):
    module, _ = fitted(TWO)
    module.save_checkpoint(str(tmp_path / "m"), 1, save_optimizer_states=True)
    found = []
    for groups in (TWO, None):
        again = mx.mod.Module.load(
            str(tmp_path / "m"), 1, True, context=mx.cpu(0), group2ctxs=groups, fused_update=True
        )
        mx.random.seed(2)
        again.fit(iterator(), num_epoch=1, optimizer="adam", eval_metric="ce")
        found.append({n: a.asnumpy() for n, a in again.get_params()[0].items()})
    same(*found)


def test_buckets_share_parameters_on_their_devices():
    def bucket(length):
        return lstm(length=length, words=WORDS), ("data",), ("softmax_label",)

    found = []
    for groups in (None, TWO):
        module = mx.mod.BucketingModule(bucket, T, context=mx.cpu(0), group2ctxs=groups, memory_budget="1MiB")
        module.bind([("data", (N, T))], [("softmax_label", (N, T))])
        module.init_params(arg_params=parameters(bucket(T)[0]))
        module.init_optimizer(optimizer="adam")
        for length in (T, 2, T, 2):
            x = mx.nd.ones((N, length))
            shapes = [("data", x.shape)], [("softmax_label", x.shape)]
            module.forward_backward(mx.io.DataBatch([x], [x], 0, 0, length, *shapes))
            module.update()
        found.append({n: a.asnumpy() for n, a in module.get_params()[0].items()})
    same(*found)


@pytest.mark.parametrize(
    "groups, contexts, words",
    [
        ("b", mx.cpu(0), "group2ctxs is a dict of groups and devices"),
        ([TWO, TWO], mx.cpu(0), "one for each of 1 contexts"),
        ({"embed": [mx.cpu(0), mx.cpu(1)]}, mx.cpu(0), "2 devices for 'embed', where 1 contexts"),
        ({"embed": "cpu"}, mx.cpu(0), r"group2ctxs\['embed'\] must be a device"),
        (TWO, [mx.cpu(0), mx.cpu(1)], r"'layer1' on cpu\(1\) beside cpu\(0\)"),
    ],
)
def test_what_cannot_be_groups_is_refused(groups, contexts, words):
    with pytest.raises(mx.MXLiteError, match=words):
        mx.mod.Module(lstm(T), context=contexts, group2ctxs=groups)


def test_each_context_may_have_all_groups():
    lists = {name: [mx.cpu(0), mx.cpu(1)] for name in TWO}
    for groups in (lists, [{n: mx.cpu(i) for n in TWO} for i in (0, 1)]):
        module = mx.mod.Module(lstm(T), context=[mx.cpu(0), mx.cpu(1)], group2ctxs=groups)
        module.bind([("data", (N, T))], [("softmax_label", (N, T))])
        assert [d.context for d in module.devices] == [mx.cpu(0), mx.cpu(1)]
