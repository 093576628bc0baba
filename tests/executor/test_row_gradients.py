"""Which rows a gradient reaches in a bound program, and updates that leave the others alone."""

import numpy as np
import pytest

import mxlite as mx
from mxlite.module.optim import optimizer_base

DATA = np.array([1, 4, 1], "float32")


def embedded(**how):
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("table_weight", **how)
    return mx.sym.Embedding(data, weight, input_dim=6, output_dim=2, sparse_grad=True, name="table")


def bound(net, **options):
    exe = net.simple_bind(mx.cpu(), data=(3,), grad_req={"table_weight": "write"}, **options)
    exe.arg_dict["data"][:] = DATA
    exe.arg_dict["table_weight"][:] = np.arange(12).reshape(6, 2)
    return exe


def rows_of(net):
    exe = bound(net)
    exe.forward(is_train=True)
    exe.backward()
    assert exe.memory_plan.peak_bytes == exe.measured_bytes
    grad = exe.grad_dict["table_weight"]
    return None if grad.stype == "default" else grad.indices.asnumpy().tolist()


def loss(*parts):
    return mx.sym.make_loss(mx.sym.add_n(*(mx.sym.sum(p) for p in parts)))


def test_rows_are_those_of_all_uses():
    data, shared = mx.sym.Variable("data"), mx.sym.Variable("table_weight")
    one, other, dense = (
        mx.sym.Embedding(number, shared, input_dim=6, output_dim=2, sparse_grad=sparse, name=name)
        for number, sparse, name in ((data, True, "one"), (data - 1, True, "other"), (data, False, "dense"))
    )
    assert rows_of(loss(one)) == [1, 4]
    assert rows_of(loss(one, other)) == [0, 1, 3, 4]
    assert rows_of(loss(one, shared * shared)) is None
    assert rows_of(loss(one, dense)) is None
    assert rows_of(loss(one, mx.sym.BlockGrad(shared))) == [1, 4]
    third = mx.sym.contrib.SparseEmbedding(data, shared, input_dim=6, output_dim=2, name="third")
    assert rows_of(loss(third)) == [1, 4]


def test_two_tables_that_are_read_by_the_same_numbers_have_their_rows_each():
    data = mx.sym.Variable("data")
    one, other = (
        mx.sym.Embedding(data, input_dim=6, output_dim=2, sparse_grad=True, name=name) for name in "ab"
    )
    exe = loss(one, other * 3).simple_bind(
        mx.cpu(), data=(3,), grad_req={"a_weight": "write", "b_weight": "write"}
    )
    exe.arg_dict["data"][:] = DATA
    exe.forward(is_train=True)
    exe.backward()
    for name, each in (("a_weight", 1), ("b_weight", 3)):
        grad = exe.grad_dict[name]
        assert grad.indices.asnumpy().tolist() == [1, 4]
        np.testing.assert_array_equal(grad.data.asnumpy(), [[2 * each] * 2, [each] * 2])


def test_a_csr_matrix_stays_one_through_what_is_0_at_0():
    data, weight = mx.sym.Variable("data", stype="csr"), mx.sym.Variable("weight")
    x = np.zeros((2, 4), "float32")
    x[0, 1], x[1, 3] = 2, -1
    for made, rows in (
        (mx.sym.dot(mx.sym.square(data) * 2, weight), [1, 3]),
        (mx.sym.dot(mx.sym.cast_storage(data, stype="csr"), weight), [1, 3]),
        (mx.sym.dot(mx.sym.exp(data), weight), None),
        (mx.sym.dot(mx.sym.cast_storage(data, stype="default"), weight), None),
        (mx.sym.dot(data, weight, transpose_b=True), None),
    ):
        exe = mx.sym.make_loss(mx.sym.sum(made)).simple_bind(mx.cpu(), data=(2, 4), weight=(4, 4))
        exe.forward(is_train=True, data=mx.nd.sparse.csr_matrix(x))
        exe.backward()
        grad = exe.grad_dict["weight"]
        assert (None if grad.stype == "default" else grad.indices.asnumpy().tolist()) == rows


def test_a_gradient_that_is_added_to_is_dense():
    exe = loss(embedded()).simple_bind(mx.cpu(), data=(3,), grad_req={"table_weight": "add"})
    assert exe.grad_dict["table_weight"].stype == "default"


def test_a_gradient_by_rows_can_be_written_and_copied():
    exe = bound(loss(embedded()))
    exe.forward(is_train=True)
    exe.backward()
    grad = exe.grad_dict["table_weight"]
    assert isinstance(grad, mx.nd.sparse.RowSparseNDArray) and grad.shape == (6, 2) and grad.size == 12
    kept = grad.copy()
    grad[:] = mx.nd.sparse.row_sparse_array(([[5, 6]], [2]), shape=(6, 2))
    assert grad.indices.asnumpy().tolist() == [2] and grad.asnumpy()[2].tolist() == [5, 6]
    assert kept.indices.asnumpy().tolist() == [1, 4] and kept.asnumpy()[1].tolist() == [2, 2]
    assert (grad * 2).stype == "row_sparse"


@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_a_fused_lazy_update_moves_its_rows_alone(amp):
    exe = bound(loss(embedded()), optimizer=mx.optimizer.SGD(momentum=0.9, wd=0.5), amp=amp)
    assert exe.memory_plan.to_json()
    for _ in range(2):
        exe.step([[0.1, 0.5]])
    got = exe.arg_dict["table_weight"].asnumpy()
    rest = [0, 2, 3, 5]
    assert (got[rest] == np.arange(12).reshape(6, 2)[rest]).all()
    weight, momentum = np.arange(12.0).reshape(6, 2)[[1, 4]], 0.0
    for _ in range(2):
        momentum = 0.9 * momentum - 0.1 * (np.array([[2.0], [1.0]]) + 0.5 * weight)
        weight = weight + momentum
    np.testing.assert_allclose(got[[1, 4]], weight, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: mx.optimizer.Adam(wd=0.5, **k),
        lambda **k: mx.optimizer.Ftrl(**k),
    ],
    ids=["adam", "ftrl"],
)
def test_a_lazy_update_of_a_16_bit_weight_moves_the_rows_of_its_float32_copy(make, kind):
    types = {"table_weight": kind, "data": "float32"}
    net = loss(embedded(stype="row_sparse"))
    exe = bound(net, optimizer=make(multi_precision=True), type_dict=types)
    wide = bound(net, optimizer=make())
    for _ in range(3):
        for e in (exe, wide):
            e.step([[1e-3, 0.5]])
    mx.nd.waitall()
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    start = np.arange(12).reshape(6, 2)
    got = exe.optimizer_states["table_weight:weight32"].asnumpy()
    np.testing.assert_array_equal(got, wide.arg_dict["table_weight"].asnumpy())
    np.testing.assert_array_equal(
        exe.arg_dict["table_weight"].asnumpy(), got.astype(exe.arg_dict["table_weight"].dtype)
    )
    assert (got[[0, 2, 3, 5]] == start[[0, 2, 3, 5]]).all() and (got[[1, 4]] != start[[1, 4]]).all()


@pytest.mark.parametrize("optimizer, more", [("sgd", {"momentum": 0.9}), ("adam", {})])
def test_a_16_bit_table_learns_alike_with_fused_and_separate_updates(optimizer, more):
    found = []
    net = embedded(stype="row_sparse", dtype="float16")
    net = mx.sym.MakeLoss(mx.sym.sum(net * net))
    for fused in (True, False):
        module = mx.mod.Module(net, ("data",), (), fused_update=fused)
        module.bind([("data", (3,))])
        module.init_params(mx.init.One())
        module.init_optimizer(
            optimizer=optimizer,
            optimizer_params={"learning_rate": 0.01, "wd": 0.1, "multi_precision": True, **more},
        )
        for rows in ([1, 4, 1], [2, 2, 4]):
            module.forward_backward(mx.io.DataBatch([mx.nd.array(rows)]))
            module.update()
        found.append(module.get_params()[0]["table_weight"].asnumpy())
        assert found[-1].dtype == np.float16
        assert (found[-1][[0, 3, 5]] == 1).all() == (optimizer == "adam")  # SGD's decay all, as in MXNet
    assert (found[0] == found[1]).all() and (found[0][[1, 2, 4]] != 1).all()


@pytest.mark.parametrize("rows", [[], [0], [3, 4], [0, 1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("width", [3, 40])
def test_a_lazy_step_is_the_step_on_those_rows(rows, width, monkeypatch):
    from mxlite import ops
    from mxlite.graph import parse_attrs
    from mxlite.ops.optim import update

    monkeypatch.setattr(update, "CHUNK", 16)
    draw = np.random.RandomState(0)
    weight, grad, mean = (draw.randn(7, width).astype("float32") for _ in range(3))
    var = np.abs(mean)
    want = [x.copy() for x in (weight, mean, var)]
    hyper = np.array([[0.1, 0.01]])
    flags = np.zeros(7, np.uint8)
    flags[rows] = 1
    op, plain = ops.find_op("_lazy_adam"), ops.find_op("_fused_adam")
    attrs = parse_attrs(op, {"row": 0})
    work = np.empty(op.workspace(attrs, (weight.shape,), (), weight.dtype), np.uint8)
    op.forward(np, attrs, weight, grad, mean, var, flags, hyper, work=work)
    if rows:
        part = [x[rows].copy() for x in want]
        work = np.empty(plain.workspace(attrs, (part[0].shape,), (), weight.dtype), np.uint8)
        plain.forward(np, attrs, part[0], grad[rows], *part[1:], hyper, work=work)
        for x, p in zip(want, part):
            x[rows] = p
    for x, y in zip((weight, mean, var), want):
        np.testing.assert_array_equal(x, y)


def test_bind_takes_sparse_arguments_and_makes_them_dense():
    data, weight = mx.sym.Variable("data", stype="csr"), mx.sym.Variable("weight", stype="row_sparse")
    net = mx.sym.sparse.dot(data, weight)
    eye, ones = mx.nd.sparse.csr_matrix(np.eye(2, dtype="float32")), mx.nd.ones((2, 2))
    args = {"data": eye, "weight": ones.tostype("row_sparse")}
    exe = net.bind(mx.cpu(), args)
    assert exe.forward()[0].asnumpy().tolist() == [[1, 1], [1, 1]]
    assert exe.arg_dict["data"].stype == "default"


def test_prepare_knows_the_parameters():
    net = mx.sym.LinearRegressionOutput(embedded(), mx.sym.Variable("label"), name="out")
    module = mx.mod.Module(net, label_names=["label"])
    module.bind([("data", (3,))], [("label", (3, 2))])
    module.prepare(None, sparse_row_id_fn=lambda batch: {"table_weight": mx.nd.array([1])})
    with pytest.raises(mx.UnknownNameError, match="'tabel_weight', which is no parameter"):
        module.prepare(None, sparse_row_id_fn=lambda batch: {"tabel_weight": mx.nd.array([1])})


def test_the_storage_type_is_in_the_file_as_mxnet_writes_it():
    text = mx.sym.dot(mx.sym.Variable("x", stype="csr"), mx.sym.Variable("w", stype="row_sparse")).tojson()
    assert '{"__storage_type__": "2"}' in text and '{"__storage_type__": "1"}' in text
    assert mx.sym.load_json(text).tojson() == text


def test_rows_are_pulled_into_row_sparse_arrays_alone():
    store = mx.kv.create("local")
    store.init("w", mx.nd.ones((3, 2)))
    out = mx.nd.sparse.zeros("row_sparse", (3, 2))
    store.row_sparse_pull("w", out=out, row_ids=mx.nd.array([2, 2]))
    assert out.indices.asnumpy().tolist() == [2]
    with pytest.raises(mx.core.ArgumentError, match="out of 'w' is default"):
        store.row_sparse_pull("w", out=mx.nd.ones((3, 2)), row_ids=mx.nd.array([2]))
    with pytest.raises(mx.ShapeError, match="1 arrays of 'w' need as many row_ids, not 2"):
        store.row_sparse_pull("w", out=[out], row_ids=[mx.nd.array([2])] * 2)


@pytest.mark.parametrize("name", sorted(set(optimizer_base._registry) - {"test"}))
def test_an_update_in_the_step_changes_the_rows_that_one_by_hand_does(name):
    options = {"learning_rate": 0.1, "wd": 0.1}
    by_hand, fused = (mx.optimizer.create(name, **options) for _ in range(2))
    if fused.update_rule() is None:
        return
    start = np.arange(12).reshape(6, 2) / 10
    exe = bound(loss(embedded()))
    step = loss(embedded()).simple_bind(
        mx.cpu(), data=(3,), optimizer=fused, grad_req={"table_weight": "write"}
    )
    updater = mx.optimizer.get_updater(by_hand)
    step.arg_dict["data"][:] = DATA
    for e in (exe, step):
        e.arg_dict["table_weight"][:] = start
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward()
        updater(0, exe.grad_dict["table_weight"], exe.arg_dict["table_weight"])
        step.step(fused.hypers((0,)))
    got, want = (e.arg_dict["table_weight"].asnumpy() for e in (step, exe))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("amp, scale", [("bfloat16", None), ("float16", 64.0)])
def test_mixed_precision_keeps_gradients_by_rows(amp, scale):
    data, weight = mx.sym.Variable("data", stype="csr"), mx.sym.Variable("weight")
    net = mx.sym.LinearRegressionOutput(mx.sym.dot(data, weight), mx.sym.Variable("label"), name="out")
    exe = net.simple_bind(
        mx.cpu(),
        data=(2, 4),
        weight=(4, 2),
        label=(2, 2),
        grad_req={"weight": "write"},
        amp=amp,
        loss_scale=scale,
    )
    exe.forward(is_train=True, data=mx.nd.sparse.csr_matrix(([1.0, 2], [3, 1], [0, 1, 2]), shape=(2, 4)))
    exe.backward()
    assert exe.grad_dict["weight"].indices.asnumpy().tolist() == [1, 3]
    assert exe.memory_plan.peak_bytes == exe.measured_bytes
