"""What FeedForward, key-value stores, modules in a row and cells refuse, and promise beside MXNet."""

import pickle
import warnings

import numpy as np
import pytest

import mxlite as mx


def net(hidden=3):
    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="fc")
    return mx.sym.SoftmaxOutput(layer, name="softmax")


def rows(count=8):
    draw = np.random.RandomState(0)
    return draw.rand(count, 4).astype("float32"), draw.randint(0, 3, count).astype("float32")


def feed_forward(*args, **options):
    with pytest.warns(DeprecationWarning, match=r"mx\.mod\.Module"):
        return mx.model.FeedForward(*args, **options)


def test_private_names_of_modules_are_those_of_mxnet():
    module = mx.mod.Module(net(), fixed_param_names=["fc_bias"])
    assert (module._data_names, module._label_names) == (["data"], ["softmax_label"])
    assert module._fixed_param_names == ["fc_bias"] and module._arg_params is None
    module.bind([("data", (2, 4))], [("softmax_label", (2,))])
    module.init_params(mx.init.One())
    assert sorted(module._arg_params) == ["fc_bias", "fc_weight"] and module._aux_params == {}
    assert (module._arg_params["fc_weight"].asnumpy() == 1).all()
    buckets = mx.mod.BucketingModule(lambda key: (net(key), ["data"], ["softmax_label"]), 3)
    assert buckets._default_bucket_key == buckets._curr_bucket_key == 3


def test_private_parameters_are_stored_as_their_variables_say():
    weight = mx.sym.Variable("weight", stype="row_sparse", shape=(3, 1), init=mx.init.One())
    layer = mx.sym.dot(mx.sym.Variable("data", stype="csr"), weight)
    module = mx.mod.Module(layer, label_names=None)
    module.bind([("data", (2, 3))], for_training=False)
    module.init_params()
    assert module._arg_params["weight"].stype == "row_sparse"
    assert module._arg_params["weight"].asnumpy().tolist() == [[1], [1], [1]]


def test_bytes_of_one_executor_do_not_count_those_of_other_buckets():
    def network(length):
        data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, flatten=False, name="fc")
        return mx.sym.SoftmaxOutput(mx.sym.sum(data, axis=1), name="softmax"), ["data"], ["softmax_label"]

    module = mx.mod.BucketingModule(network, 8)
    module.bind([("data", (4, 8, 3))], [("softmax_label", (4,))])
    module.init_params()
    shapes = [("data", (4, 6, 3))], [("softmax_label", (4,))]
    before = module._buckets[8]._total_exec_bytes
    module.switch_bucket(6, *shapes)
    assert before > 0 and module._buckets[8]._total_exec_bytes == before
    del module._buckets[6]
    module.switch_bucket(6, *shapes)
    assert module._buckets[8]._total_exec_bytes == before


def test_a_shape_that_is_an_array_is_an_error_of_kind():
    module = mx.mod.Module(net())
    with pytest.raises(TypeError, match="shape of 'data' must be of whole numbers, got NDArray"):
        module.bind([("data", mx.nd.array([10, 10]))])
    assert not module.binded


def test_the_default_context_is_set_as_in_mxnets_older_programs():
    assert mx.Context.default_ctx == mx.cpu(0)
    mx.Context.default_ctx = mx.cpu(3)
    try:
        assert mx.current_context() == mx.nd.ones((1,)).context == mx.cpu(3)
        with mx.cpu(1):
            assert mx.current_context() == mx.cpu(1) == mx.Context.default_ctx
    finally:
        mx.Context.default_ctx = mx.cpu(0)
    assert mx.current_context() == mx.cpu(0)


def test_a_batch_is_cut_for_devices_as_in_mxnet():
    from mxlite.executor_manager import _split_input_slice

    def cut(*asked):
        return [(s.start, s.stop) for s in _split_input_slice(*asked)]

    assert cut(7, [1]) == [(0, 7)]
    assert cut(8, [1, 1, 2]) == [(0, 2), (2, 4), (4, 8)]
    assert cut(10, [1, 1, 1]) == [(0, 3), (3, 6), (6, 10)]
    with pytest.raises(mx.ShapeError, match="2 samples are too few"):
        cut(2, [1, 1, 1])


@pytest.mark.parametrize(
    "module, name, found",
    [
        ("base", "MXNetError", mx.MXNetError),
        ("contrib.onnx", "import_model", mx.formats.onnx.import_model),
        ("image.detection", "ImageDetIter", mx.image.ImageDetIter),
        ("image.image", "ImageIter", mx.image.ImageIter),
        ("io.io", "DataDesc", mx.io.DataDesc),
        ("name", "NameManager", mx.name.NameManager),
        ("ndarray._internal", "_plus_scalar", mx.nd._internal._plus_scalar),
        ("ndarray.op", "dot", mx.nd.op.dot),
        ("optimizer.optimizer", "SGD", mx.optimizer.SGD),
        ("rnn.rnn_cell", "LSTMCell", mx.rnn.LSTMCell),
        ("symbol.op", "dot", mx.sym.dot),
        ("util", "is_np_shape", mx.util.is_np_shape),
    ],
)
def test_names_are_imported_from_where_mxnet_has_them(module, name, found):
    scope = {}
    exec(f"from mxlite.{module} import {name}", scope)
    assert scope[name] is found


# -- FeedForward -------------------------------------------------------------------------------


def test_feed_forward_stays_within_its_budget():
    x, y = rows()
    model = feed_forward(net(), num_epoch=1, memory_budget="4KiB")
    model.fit(x, y)
    assert model.predict(x).shape == (8, 3)
    tight = feed_forward(net(), num_epoch=1, memory_budget=100)
    with pytest.raises(mx.MemoryBudgetError):
        tight.fit(x, y)


def test_a_pull_leaves_sparse_arrays_alone_unless_told_otherwise():
    store = mx.kv.create()
    store.init(3, mx.nd.ones((2, 2)))
    out = (mx.nd.ones((2, 2)) * 2).tostype("row_sparse")
    store.pull(3, out=out)
    assert out.asnumpy().tolist() == [[2, 2], [2, 2]]
    store.pull(3, out=out, ignore_sparse=False)
    assert out.asnumpy().tolist() == [[1, 1], [1, 1]]


def test_feed_forward_predicts_for_arrays_of_any_number_of_rows():
    x, y = rows(20)
    model = feed_forward(net(), num_epoch=1, numpy_batch_size=8)
    model.fit(x, y)
    whole = model.predict(x)
    for count in (20, 3, 8, 1):
        np.testing.assert_allclose(model.predict(x[:count]), whole[:count], rtol=1e-5)
    copy = pickle.loads(pickle.dumps({k: v for k, v in model.__getstate__().items() if k == "_predictor"}))
    assert copy["_predictor"] is None


def test_feed_forward_goes_on_in_the_data_where_an_epoch_ended():
    class Counted(mx.io.NDArrayIter):
        resets = 0

        def reset(self):
            Counted.resets += 1
            super().reset()

    x, y = rows(24)
    feed_forward(net(), num_epoch=3, epoch_size=2).fit(Counted(x, y, 4))
    assert Counted.resets == 1 + 1  # the data have 6 batches: before the first, none within, at the end none
    with pytest.raises(mx.StateError, match="have no batch"):
        feed_forward(net(), num_epoch=1).fit(mx.io.ResizeIter(Empty(), 1))


class Empty(mx.io.DataIter):
    provide_data, provide_label = [("data", (4, 4))], [("softmax_label", (4,))]

    def next(self):
        raise StopIteration


def test_feed_forward_says_what_is_wrong():
    x, y = rows()
    model = feed_forward(net(), num_epoch=1)
    with pytest.raises(mx.StateError, match="no parameters yet"):
        model.predict(x)
    with pytest.raises(mx.StateError, match="no parameters yet"):
        model.save("nowhere")
    with pytest.raises(ValueError, match="needs y"):
        model.fit(x)
    with pytest.raises(ValueError, match="8 samples, y 7 labels"):
        model.fit(x, y[:7])
    with pytest.raises(ValueError, match=r"\(N,\) or \(N, 1\)"):
        model.fit(x, np.zeros((8, 2)))
    with pytest.raises(TypeError, match="X is a DataIter"):
        model.fit([1, 2], y)
    with pytest.raises(TypeError, match="pair of arrays"):
        model.fit(x, y, eval_data=x)
    with pytest.raises(mx.StateError, match="needs num_epoch"):
        feed_forward(net()).fit(x, y)
    with pytest.raises(TypeError, match="symbol, or a function"):
        feed_forward("net")
    with pytest.raises(TypeError, match="name or an Optimizer"):
        feed_forward(net(), num_epoch=1, optimizer=3).fit(x, y)
    with pytest.raises(mx.OpAttributeError, match="momentun"):
        feed_forward(net(), num_epoch=1, momentun=0.9).fit(x, y)
    with pytest.raises(mx.BindError, match="two arguments called 'data'"):
        feed_forward(mx.sym.Variable("data") + mx.sym.Variable("data"))
    model.fit(x, y)
    model.arg_params["more"] = mx.nd.ones((1,))
    with pytest.raises(mx.BindError, match=r"'more' is no parameter.*allow_extra_params"):
        model.predict(x)
    del model.arg_params["more"], model.arg_params["fc_bias"]
    with pytest.raises(mx.MXNetError, match="'fc_bias' is neither among the data"):
        model.predict(x)


# -- key-value stores --------------------------------------------------------------------------


def test_a_store_says_what_is_wrong():
    for name in ("dist_async", "dist_device_async", "p3"):
        with pytest.raises(mx.MXNetError, match="workers that do not wait for each other"):
            mx.kv.create(name)
    with pytest.raises(mx.UnknownNameError, match="Did you mean 'local'"):
        mx.kv.create("locl")
    store = mx.kv.create("local")
    store.init(1, mx.nd.ones((2,)))
    with pytest.raises(mx.BindError, match="initialised already"):
        store.init(1, mx.nd.ones((2,)))
    with pytest.raises(mx.BindError, match="all numbers or all text"):
        store.init("a", mx.nd.ones((2,)))
    with pytest.raises(mx.UnknownNameError, match="key 2 has not been initialised"):
        store.push(2, mx.nd.ones((2,)))
    with pytest.raises(mx.ShapeError, match=r"1 is \(2,\), but \(3,\) was pushed"):
        store.push(1, mx.nd.ones((3,)))
    with pytest.raises(mx.ShapeError, match="2 keys need as many values, got 1"):
        store.push([1, 1], [mx.nd.ones((2,))])
    with pytest.raises(TypeError, match="must be an NDArray"):
        store.push(1, 3)
    with pytest.raises(TypeError, match="number or text"):
        store.init(1.5, mx.nd.ones((2,)))
    with pytest.raises(TypeError, match="out="):
        store.pull(1)
    with pytest.raises(mx.StateError, match="set_optimizer"):
        store.save_optimizer_states("nowhere")
    with pytest.raises(mx.MXNetError, match="sparse"):
        store.row_sparse_pull(1, mx.nd.ones((2,)), row_ids=mx.nd.zeros((1,)))
    with pytest.raises(mx.MXNetError, match="compress"):
        store.set_gradient_compression({"type": "2bit"})


def test_a_store_holds_a_modules_parameters_themselves_and_the_update_stays_in_the_step():
    x, y = rows()
    store, module = mx.kv.create("local"), mx.mod.Module(net())
    module.fit(mx.io.NDArrayIter(x, y, 4), num_epoch=1, kvstore=store, optimizer_params={"momentum": 0.9})
    assert module.is_fused and module.measured_bytes == module.planned_bytes
    out = mx.nd.zeros((3, 4))
    store.pull("fc_weight", out=out)
    np.testing.assert_array_equal(out.asnumpy(), module.get_params()[0]["fc_weight"].asnumpy())
    store.push("fc_weight", mx.nd.ones((3, 4)))
    changed = module.get_params()[0]["fc_weight"].asnumpy()
    assert (changed < out.asnumpy()).all()  # by the module's optimizer, with its momentum
    with pytest.raises(TypeError, match="kvstore must be a KVStore, its name, or None"):
        module.init_optimizer(kvstore=3, force_init=True)
    with pytest.raises(mx.MXNetError, match="workers that do not wait for each other"):
        module.init_optimizer(kvstore="dist_async", force_init=True)


def test_a_process_without_others_is_the_only_rank():
    """dist_sync trains as without a store, in the planned step; the store has one worker."""
    store = mx.kv.create("dist_sync")
    assert (store.rank, store.num_workers, mx.dist.is_initialized(), mx.dist.size()) == (0, 1, False, 1)
    store.init("a", mx.nd.ones((2,)))
    store.push("a", [mx.nd.ones((2,)), mx.nd.ones((2,))])
    assert mx.dist.allreduce(mx.nd.ones((2,))).asnumpy().tolist() == [1, 1]
    x, y = rows()
    module = mx.mod.Module(net())
    module.fit(mx.io.NDArrayIter(x, y, 4), num_epoch=1, kvstore="dist_sync")
    assert module.is_fused and "over_ranks" not in module._executor.debug_str()
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    out = mx.nd.zeros((2,))
    for sent in (0.0, 0.5):  # 0.3 is below the threshold, and stays for the second time
        store.push("a", mx.nd.ones((2,)) * 0.3)
        store.pull("a", out=out)
        assert out.asnumpy().tolist() == [sent, sent]
    with pytest.raises(mx.OperatorError, match="Rank 0 would compress a gradient of inf or nan"):
        store.push("a", mx.nd.array([np.inf, 1]))
        mx.nd.waitall()


# -- modules in a row --------------------------------------------------------------------------


def test_a_row_of_modules_says_what_is_wrong():
    row = mx.mod.SequentialModule()
    with pytest.raises(mx.StateError, match="no modules"):
        row.bind([("data", (4, 4))])
    with pytest.raises(mx.BindError, match="not 'take_label'"):
        row.add(mx.mod.Module(net()), take_label=True)
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    row.add(mx.mod.Module(first, label_names=None)).add(
        mx.mod.Module(net()), take_labels=True, auto_wiring=True
    )
    with pytest.raises(mx.StateError, match="call bind"):
        row.init_params()
    with pytest.raises(mx.StateError, match="for_training is False"):
        row.bind([("data", (4, 4))], for_training=False, inputs_need_grad=True)
    row.bind([("data", (4, 4))], [("softmax_label", (4,))])
    with pytest.raises(mx.BindError, match="Modules 0 and 1 both have a parameter 'fc_weight'"):
        row.init_params()
    two = mx.mod.SequentialModule()
    two.add(mx.mod.Module(mx.sym.SliceChannel(mx.sym.Variable("data"), num_outputs=2), label_names=None))
    two.add(mx.mod.Module(net()), auto_wiring=True)
    with pytest.raises(mx.BindError, match=r"module 1 has the data \['data'\], but gets 2 arrays"):
        two.bind([("data", (4, 4))])


def test_a_row_takes_batches_of_other_sizes():
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="first")
    row = mx.mod.SequentialModule().add(mx.mod.Module(first, label_names=None))
    row.add(mx.mod.Module(net()), take_labels=True, auto_wiring=True)
    row.bind([("data", (4, 4))], [("softmax_label", (4,))], inputs_need_grad=True)
    row.init_params(mx.init.Xavier())
    row.init_optimizer()
    for count in (4, 2, 5):
        row.forward_backward(mx.io.DataBatch([mx.nd.ones((count, 4))], [mx.nd.zeros((count,))]))
        row.update()
        assert row.get_outputs()[0].shape == (count, 3)
        assert row.get_input_grads()[0].shape == (count, 4)


def test_a_module_in_python_says_what_is_wrong():
    loss = mx.mod.PythonLossModule()
    with pytest.raises(mx.BindError, match=r"data_shapes are of \['x'\]"):
        loss.bind([("x", (2, 3))])
    with pytest.raises(mx.BindError, match="grad_req 'add'"):
        loss.bind([("data", (2, 3))], grad_req="add")
    loss.bind([("data", (2, 3))], [("softmax_label", (2,))])
    loss.forward(mx.io.DataBatch([mx.nd.ones((2, 3))], [mx.nd.ones((2,))]))
    with pytest.raises(NotImplementedError, match="grad_func"):
        loss.backward()
    with pytest.raises(mx.StateError, match="takes no out_grads"):
        loss.backward([mx.nd.ones((2, 3))])
    with pytest.raises(mx.BindError, match="one data name"):
        mx.mod.PythonLossModule(data_names=("a", "b"))


# -- cells -------------------------------------------------------------------------------------


def test_cells_say_what_is_wrong():
    data, cell = mx.sym.Variable("data"), mx.rnn.LSTMCell(4)
    with pytest.raises(mx.ShapeError, match="needs 3 inputs, got 2"):
        cell.unroll(3, [data, data])
    with pytest.raises(mx.ShapeError, match="needs inputs"):
        cell.unroll(3, None)
    with pytest.raises(mx.ShapeError, match="group of 2"):
        cell.unroll(3, mx.sym.Group([data, mx.sym.Variable("other")]))
    with pytest.raises(mx.OpAttributeError, match="which axis is time"):
        cell.unroll(3, data, layout="NC")
    with pytest.raises(mx.UnknownNameError, match="no 'lstm_i2h_weight'"):
        cell.unpack_weights({})
    with pytest.raises(mx.OpAttributeError, match="mode is one of"):
        mx.rnn.FusedRNNCell(4, mode="ltsm")
    fused = mx.rnn.FusedRNNCell(4, mode="gru")
    with pytest.raises(mx.StateError, match="use its unroll"):
        fused(data, [])
    with pytest.raises(mx.ShapeError, match="the vector has 100"):
        fused.unpack_weights({"gru_parameters": mx.nd.zeros((100,))})
    with pytest.raises(mx.MXNetError, match="unfuse"):
        mx.rnn.ZoneoutCell(fused)
    inside = mx.rnn.RNNCell(4)
    mx.rnn.ResidualCell(inside)
    with pytest.raises(mx.StateError, match="inside a modifier cell"):
        inside.begin_state()
    stack = mx.rnn.SequentialRNNCell(params=mx.rnn.RNNParams("a_"))
    taken = mx.rnn.RNNCell(4, params=mx.rnn.RNNParams("b_"))
    with pytest.raises(mx.StateError, match="not to both"):
        stack.add(taken)
    with pytest.raises(mx.OpAttributeError, match="must be odd"):
        mx.rnn.ConvRNNCell((1, 1, 4, 4), 2, h2h_kernel=(2, 2))
    with pytest.raises(mx.OpAttributeError, match="dropout is a number"):
        mx.rnn.DropoutCell("0.5")


def test_a_fused_cell_and_its_stack_compute_the_same():
    for mode, bidirectional in (("lstm", False), ("gru", True), ("rnn_tanh", False)):
        fused = mx.rnn.FusedRNNCell(3, num_layers=2, mode=mode, bidirectional=bidirectional, prefix="net_")
        stack = fused.unfuse()
        data = mx.sym.Variable("data")
        one, other = (c.unroll(4, data, layout="TNC", merge_outputs=True)[0] for c in (fused, stack))
        shapes, _, _ = one.infer_shape(data=(4, 2, 5))
        vector = mx.nd.random.uniform(-0.5, 0.5, shape=shapes[one.list_arguments().index("net_parameters")])
        x = mx.nd.random.uniform(shape=(4, 2, 5))
        packed = stack.pack_weights(fused.unpack_weights({"net_parameters": vector}))
        a, b = one.eval(data=x, net_parameters=vector)[0], other.eval(data=x, **packed)[0]
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)


def test_an_open_shape_inside_a_network_is_refused():
    network = mx.sym.Flatten(mx.sym.zeros((0, 4), name="start"), name="flat") * 2
    with pytest.raises(mx.ShapeError, match="'start' does not follow from what is known: only"):
        network.simple_bind(mx.cpu())


def test_first_states_get_the_batch_size_through_layers():
    data, weight = mx.sym.Variable("data"), dict(num_hidden=6, no_bias=True)
    start = mx.sym.zeros((0, 4), name="start")
    parts = mx.sym.SliceChannel(mx.sym.FullyConnected(start, name="h", **weight), num_outputs=2)
    total = parts[0] + mx.sym.FullyConnected(data, num_hidden=3, name="x")
    assert total.get_internals().infer_shape(data=(5, 2))[1][:1] == [(5, 4)]
    kept = mx.sym.where(mx.sym.ones_like(data), data, mx.sym.zeros((0, 0), name="before"))
    assert kept.infer_shape(data=(5, 2))[1] == [(5, 2)]


def test_contrib_is_reached_by_all_its_names():
    for place in (mx.contrib.nd, mx.contrib.ndarray):
        assert place is mx.nd.contrib
    for place in (mx.contrib.sym, mx.contrib.symbol):
        assert place is mx.sym.contrib
    assert mx.kv is mx.kvstore and mx.mon is mx.monitor
    from mxlite.kvstore import KVStore
    from mxlite.rnn import LSTMCell

    assert KVStore is mx.kv.KVStore and LSTMCell is mx.rnn.LSTMCell
    assert mx.init.create("fusedrnn", None, 4, 1, "lstm").dumps().startswith('["fusedrnn", {"init": null')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.rnn.FusedRNNCell(4).unroll(2, mx.sym.Variable("data"), layout="TNC")


def test_a_cell_of_one_s_own_takes_activations_as_the_others_do():
    class Plain(mx.rnn.BaseRNNCell):
        state_info = property(lambda self: [{"shape": (0, 3), "__layout__": "NC"}])

        def __call__(self, inputs, states):
            out = self._get_activation(inputs + states[0], "relu", name="out")
            return out, [self._get_activation(out, lambda x: -x)]

    outputs, _ = Plain("own_").unroll(2, [mx.sym.Variable(f"x{i}") for i in range(2)])
    first, second = mx.sym.Group(outputs).eval(x0=mx.nd.ones((1, 3)), x1=mx.nd.full((1, 3), 5))
    assert (first.asnumpy()[0, 0], second.asnumpy()[0, 0]) == (1, 4)


# -- mx.contrib.autograd -----------------------------------------------------------------------


def test_functions_give_their_gradients():
    from mxlite.contrib import autograd

    x, y = mx.nd.array([1, 2]), mx.nd.array([3, 5])
    (dx, dy), out = autograd.grad_and_loss(lambda x, y: x * y + x)(x, y)
    assert (dx.asnumpy().tolist(), dy.asnumpy().tolist()) == ([4, 6], [1, 2])
    assert out.asnumpy().tolist() == [4, 12]
    (only,) = autograd.grad(lambda x, y: x * y, argnum=1)(x, y)
    assert only.asnumpy().tolist() == [1, 2]
    with pytest.raises(TypeError, match="Argument 0"):
        autograd.grad(lambda x: x)(3)


def test_sections_record_and_train():
    import mxlite.contrib.autograd as autograd

    x, grad = mx.nd.array([2]), mx.nd.zeros((1,))
    autograd.mark_variables([x], [grad])
    with autograd.train_section():
        assert mx.autograd.is_training()
        out = x * x
        with autograd.test_section():
            assert not mx.autograd.is_training() and not mx.autograd.is_recording()
    autograd.compute_gradient([out])
    assert grad.asnumpy().tolist() == [4]
    assert not autograd.set_is_training(True) and mx.autograd.is_recording()
    assert autograd.set_is_training(False) and not mx.autograd.is_recording()
