"""A mini-batch gives what its samples give alone, whatever their shapes are."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx

from .oracle import (
    agrees,
    alone,
    close,
    dense,
    gradients,
    initialize,
    loss_cell,
    sym,
    tree_network,
    trees,
    WIDTH,
)


@pytest.fixture(scope="module")
def net():
    return tree_network()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_batch_of_trees_gives_what_each_tree_gives_alone(net, count):
    agrees(net, trees(count, seed=count))


def test_a_level_wider_than_the_batch_runs_in_several():
    narrow = tree_network(max_batch=3)
    net = tree_network(max_batch=64)
    samples = trees(6)
    agrees(narrow, samples)
    close(
        narrow.forward_backward(samples).asnumpy(), net.forward_backward(samples).asnumpy(), 1e-6, "results"
    )


@pytest.mark.parametrize(
    "words", [17, 20]
)  # sizes are 16, 18, 20: with 17 words leaves are padded, with 20 joins
def test_what_a_larger_mini_batch_has_left_is_not_added(net, words):
    chain = 0
    for word in range(1, words):
        chain = (chain, word % 9)
    net.forward_backward(trees(10, seed=4))
    agrees(net, [(chain, 1)])


def test_a_loss_waits_for_the_last_level_so_that_all_losses_run_together(net):
    _, call = net._recorded(trees(7), True, True)
    assert sum(run.cell == 2 for run in call.runs) == 1 == call.levels[2]


def test_weights_are_read_once_for_each_level_in_which_a_cell_has_nodes():
    net = tree_network(max_batch=64)
    _, call = net._recorded(trees(9), True, True)
    assert [sum(run.cell == i for run in call.runs) for i in range(3)] == list(call.levels)
    read, once = net.weight_bytes(trees(9))
    assert read == once > 0


def shared_network(**options):
    """A graph in which a state is read many times, one cell has a data row, and two cells share a weight."""
    weight = sym.var("shared_weight")
    feature = sym.FullyConnected(sym.var("x"), weight, no_bias=True, num_hidden=WIDTH, name="feature")
    first = mx.dynamic.Cell("first", sym.tanh(feature), data={"x": WIDTH})
    a = sym.var("a")
    both = sym.FullyConnected(a * sym.var("b"), weight, no_bias=True, num_hidden=WIDTH, name="both")
    mix = mx.dynamic.Cell("mix", sym.tanh(both + a), {"a": WIDTH, "b": WIDTH})
    loss = loss_cell()

    def of(sample):
        rows = [first(x) for x in sample]
        hub = mix(rows[0], rows[0])
        out = [mix(hub, r) for r in rows]
        out.append(mix(out[-1], hub))
        return [loss(r, i % 3) for i, r in enumerate(out)]

    net = mx.dynamic.Network(of, [first, mix, loss], 28, max_batch=8, **options)
    initialize(net)
    return net


def rows_of(count, seed=0):
    return list(np.random.default_rng(seed).uniform(-1, 1, (count, WIDTH)).astype("float32"))


def test_a_state_that_many_nodes_read_gets_the_sum_of_their_gradients():
    net = shared_network()
    agrees(net, [rows_of(3), rows_of(1, 1), rows_of(6, 2)])
    agrees(net, [rows_of(2, 4)])


def chain_network():
    """A recurrent net over vectors, from a row of zeros on; each state is judged, and returned too."""
    step = sym.tanh(dense(sym.concat(sym.var("x"), sym.var("h"), dim=1), WIDTH, "step"))
    cell = mx.dynamic.Cell("step", step, {"h": WIDTH}, {"x": (3,)})

    def of(sample):
        h, found = of.zero, []
        for x in sample:
            h = cell(h, x)
            found.append(h)
        return found

    net = mx.dynamic.Network(of, [cell], 16, max_batch=8)
    of.zero = net.zeros(WIDTH)
    initialize(net)
    return net


def test_results_may_be_states_that_other_nodes_read():
    net = chain_network()
    rng = np.random.default_rng(0)
    agrees(net, [rng.uniform(-1, 1, (n, 3)).astype("float32") for n in (4, 1, 9)])


def test_arrays_of_mx_autograd_go_on_from_the_results():
    net = chain_network()
    rng = np.random.default_rng(1)
    samples = [rng.uniform(-1, 1, (n, 3)).astype("float32") for n in (2, 5)]
    with mx.autograd.record():
        states = net(samples)
        total = (states * states * mx.nd.arange(7).reshape((7, 1))).sum()
    total.backward()
    batched = gradients(net)
    first, _ = alone(net, samples)
    close(states.asnumpy(), first, 1e-6, "results")
    weight = net.collect_params()["step_weight"]
    values, found, there = weight.data().asnumpy(), [], [(0, 0), (2, 5), (5, 8)]
    for at in there:
        ends = []
        for shift in (1e-2, -1e-2):
            moved = values.copy()
            moved[at] += shift
            weight.set_data(mx.nd.array(moved))
            out = net(samples).asnumpy().astype("float64")
            ends.append((out * out * np.arange(7)[:, None]).sum())
        found.append((ends[0] - ends[1]) / 2e-2)
    weight.set_data(mx.nd.array(values))
    close(np.array(found), np.array([batched["step_weight"][at] for at in there]), 5e-3, "differences")


def test_gradients_are_added_where_a_parameter_asks_for_that():
    net = shared_network()
    samples = [rows_of(3)]
    net.forward_backward(samples)
    once = gradients(net)
    net.collect_params().setattr("grad_req", "add")
    for _ in range(2):
        net.forward_backward(samples)
    for name, g in gradients(net).items():
        close(g, 2 * once[name], 1e-6, name)


def test_a_frozen_parameter_has_no_gradient_and_the_others_keep_theirs():
    net = tree_network(max_nodes=20)
    samples = trees(2)
    net.forward_backward(samples)
    before = gradients(net)
    net.collect_params()["join_weight"].grad_req = "null"
    net.forward_backward(samples)
    after = gradients(net)
    assert "join_weight" not in after
    for name, g in after.items():
        close(g, before[name], 1e-6, name)


def test_a_cell_without_nodes_leaves_gradients_of_zeros(net):
    net.forward_backward(trees(4))
    net.forward_backward([(1, 0), (2, 1)])
    assert not gradients(net)["join_weight"].any()
    assert gradients(net)["leaf_weight"].any()


def test_inference_gives_the_results_of_training(net):
    samples = trees(5)
    close(net(samples).asnumpy(), net.forward_backward(samples).asnumpy(), 0, "results")


def test_a_trainer_learns_the_classes_of_trees():
    net = tree_network()
    samples = trees(12, 5, seed=5)
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    losses = []
    for _ in range(60):
        losses.append(float(net.forward_backward(samples).asnumpy().mean()))
        trainer.step(len(samples))
    assert losses[-1] < 0.1 * losses[0]


def test_parameters_may_meet_operators_before_they_meet_nodes():
    weight = sym.tanh(sym.var("w_weight", shape=(WIDTH, WIDTH)))
    scale = sym.sigmoid(sym.var("scale_gamma", shape=(1, WIDTH)))
    fixed = sym.broadcast_mul(sym.dot(sym.var("x"), weight), scale)
    step = mx.dynamic.Cell("step", sym.broadcast_add(fixed, sym.ones((1, WIDTH))), {"x": WIDTH})
    start = mx.dynamic.Cell("start", sym.tanh(dense(sym.var("v"), WIDTH, "start")), data={"v": 2})
    loss = loss_cell()

    def of(sample):
        h = start(sample)
        for _ in range(int(sample[0])):
            h = step(h)
        return loss(h, 1)

    net = mx.dynamic.Network(of, [start, step, loss], 12)
    initialize(net)
    assert net.plan.breakdown["constants"]
    agrees(net, [np.array([n, 0.5], "float32") for n in (0, 3, 1, 2)])


def test_a_row_may_be_several_rows_inside_of_a_cell_and_states_may_pass_through():
    parts = dense(sym.reshape(sym.var("x"), (-1, WIDTH // 2)), WIDTH // 2, "part")
    joined = sym.tanh(sym.LayerNorm(sym.reshape(parts, (-1, WIDTH)), name="norm"))
    x = sym.var("y")
    step = mx.dynamic.Cell("step", sym.Group([joined + x, x]), {"x": WIDTH, "y": WIDTH})
    start = mx.dynamic.Cell("start", dense(sym.var("v"), WIDTH, "start"), data={"v": (2, 2)})
    loss = loss_cell()

    def of(sample):
        h, before = start(sample[0]), of.zero
        for _ in sample[1:]:
            h, before = step(h, before)
        last = step(before, h)
        return [loss(last[0], 0), loss(last[1], 2)]

    net = mx.dynamic.Network(of, [start, step, loss], 20)
    of.zero = net.zeros(WIDTH)
    initialize(net)
    rng = np.random.default_rng(0)
    agrees(net, [rng.uniform(-1, 1, (n, 2, 2)).astype("float32") for n in (1, 4, 2)])


def dropout_network():
    dropped = sym.Dropout(
        sym.tanh(dense(sym.concat(sym.var("x"), sym.var("h"), dim=1), WIDTH, "step")), p=0.5
    )
    cell = mx.dynamic.Cell("step", dropped, {"h": WIDTH}, {"x": (3,)})

    def of(sample):
        h = of.zero
        for x in sample:
            h = cell(h, x)
        return h

    net = mx.dynamic.Network(of, [cell], 64, max_batch=8)
    of.zero = net.zeros(WIDTH)
    initialize(net)
    return net


def test_dropout_draws_anew_for_each_node_and_backward_draws_the_same():
    net = dropout_network()
    samples = [np.ones((1, 3), "float32")] * 64
    mx.random.seed(1)
    out = net.forward_backward(samples).asnumpy()
    grad = gradients(net)["step_bias"]
    kept = out != 0
    assert 0.4 < kept.mean() < 0.6 and 0 < kept[:, 0].sum() < 64
    value = np.abs(out).max(axis=0) / 2
    close(grad, kept.sum(axis=0) * 2 * (1 - value**2), 1e-5, "gradient")
    again = net.forward_backward(samples).asnumpy()
    assert (again != out).any()
    mx.random.seed(1)
    assert (net.forward_backward(samples).asnumpy() == out).all()
    whole = net(samples).asnumpy()
    assert (whole == whole[0]).all() and whole.all()


def test_gradients_of_inference_are_those_without_dropout():
    net = dropout_network()
    samples = [np.ones((2, 3), "float32")] * 5
    with mx.autograd.record(train_mode=False):
        states = net(samples)
    states.backward()
    found = gradients(net)["step_weight"]
    weight, bias = (net.collect_params()[n].data().asnumpy() for n in ("step_weight", "step_bias"))
    x, h, seen = np.ones(3), np.zeros(WIDTH), []
    for _ in range(2):
        seen.append(np.concatenate([x, h]))
        h = np.tanh(weight @ seen[-1] + bias)
        seen.append(h)
    d = 1 - seen[3] ** 2
    expected = np.outer(d, seen[2])
    expected += np.outer((weight[:, 3:].T @ d) * (1 - seen[1] ** 2), seen[0])
    close(found, 5 * expected, 1e-5, "gradient")


def test_two_networks_may_share_cells_and_parameters():
    net = tree_network(max_nodes=16)
    leaf, join, loss = net.cells
    other = mx.dynamic.Network(
        lambda pair: join(*leaf(pair[0]), *leaf(pair[1]))[0], [leaf, join], 8, params=net.collect_params()
    )
    samples = trees(2, 4)
    before = net(samples).asnumpy()
    assert other([(1, 2), (3, 4), (1, 2)]).shape == (3, WIDTH)
    assert (net(samples).asnumpy() == before).all()
    net.collect_params()["leaf_bias"].set_data(mx.nd.ones(3 * WIDTH))
    assert (net(samples).asnumpy() != before).any()
    agrees(net, samples)
    first = other([(1, 2)]).asnumpy()
    net.collect_params()["leaf_bias"].set_data(mx.nd.zeros(3 * WIDTH))
    assert (other([(1, 2)]).asnumpy() != first).any()
    assert loss.record == loss._refuse


class Join(mx.gluon.HybridBlock):
    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.dense = mx.gluon.nn.Dense(WIDTH, activation="tanh", in_units=2 * WIDTH)

    def hybrid_forward(self, F, left, right):
        return self.dense(F.concat(left, right, dim=1))


def test_a_hybrid_block_may_be_a_cell_and_bring_its_parameters():
    block = Join(prefix="join_")
    block.initialize()
    join = mx.dynamic.Cell("join", block(sym.var("left"), sym.var("right")), {"left": WIDTH, "right": WIDTH})
    leaf = mx.dynamic.Cell("leaf", sym.tanh(sym.var("x")), data={"x": WIDTH})

    def state(tree):
        return join(state(tree[0]), state(tree[1])) if isinstance(tree, tuple) else leaf(tree)

    net = mx.dynamic.Network(state, [leaf, join], 8, params=block.collect_params())
    a, b, c = rows_of(3)
    found = net.forward_backward([(a, (b, c))]).asnumpy()
    batched = gradients(net)
    x, y, z = (mx.nd.tanh(mx.nd.array(r[None])) for r in (a, b, c))
    with mx.autograd.record():
        expected = block(x, block(y, z))
    expected.backward()
    close(found, expected.asnumpy(), 1e-6, "results")
    for name, g in gradients(net).items():
        close(batched[name], g, 1e-5, name)
