"""Importing ONNX models: those that PyTorch's exporters make, versions of the standard, and broken files."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import helper, numpy_helper, TensorProto

import mxlite as mx
from mxlite.core import FormatError, MXLiteError, UnknownNameError
from mxlite.formats.onnx import backend, get_model_metadata, import_model, NotSupportedError, OpenShapeError

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "onnx"
EXPORTED = sorted(GOLDEN.glob("*.onnx"))


def golden(path):
    """(symbol, arguments, states, input, onnxruntime's output) of a stored model."""
    data = np.load(path.with_suffix(".npz"))
    x = data["input"]
    return *import_model(path, shapes={"input": x.shape}), mx.nd.array(x, dtype=x.dtype), data["output"]


def model(nodes, inputs, outputs=("y",), initializers=None, opset=18, **kwargs):
    """A ModelProto; inputs: name -> array that tells type and shape."""
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "graph", infos, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **kwargs)


def run(proto, **inputs):
    """The first output of a model, imported without a look at its inputs."""
    symbol, args, states = import_model(proto)
    arrays = {k: mx.nd.array(v, dtype=v.dtype) for k, v in inputs.items() if k in symbol.list_inputs()}
    return symbol.eval(**arrays, **args, **states)[0].asnumpy()


X = np.arange(6, dtype=np.float32).reshape(2, 3)


# -- models of PyTorch's exporters -------------------------------------------------------------------


def test_there_are_models_of_every_kind():
    assert {p.stem.removesuffix("-torchscript") for p in EXPORTED} == {
        "attention",
        "lstm",
        "resnet18",
        "transformer",
    }
    assert all(p.stat().st_size < 200_000 for p in EXPORTED)


@pytest.mark.parametrize("path", EXPORTED, ids=lambda p: p.stem)
def test_exported_models_compute_what_onnxruntime_computes(path):
    symbol, args, states, x, wanted = golden(path)
    found = symbol.eval(input=x, **args, **states)[0].asnumpy()
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("path", EXPORTED, ids=lambda p: p.stem)
def test_exported_models_are_planned_for_training_and_learn(path):
    symbol, args, states, x, wanted = golden(path)
    head = mx.sym.Flatten(symbol) if wanted.ndim > 2 else symbol
    net = mx.sym.SoftmaxOutput(head, name="softmax")
    budget = None
    if path.stem == "attention":  # one is enough: what follows is the planner's own affair
        plan = net.memory_plan(mx.cpu(), input=x.shape)
        with pytest.raises(mx.MemoryBudgetError) as refused:
            net.memory_plan(mx.cpu(), memory_budget=1, input=x.shape)
        budget = refused.value.least_feasible_bytes
        assert 0 < budget <= plan.peak_bytes
        assert net.memory_plan(mx.cpu(), memory_budget=budget, input=x.shape).peak_bytes <= budget

    label = np.arange(len(wanted)) % 3
    data = mx.io.NDArrayIter({"input": x}, {"softmax_label": label}, batch_size=len(wanted))
    mod = mx.mod.Module(net, data_names=["input"], label_names=["softmax_label"], memory_budget=budget)
    mod.bind(data.provide_data, data.provide_label)
    mod.set_params(args, states)
    mod.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.02})
    batch = next(iter(data))
    losses = []
    for _ in range(2):
        mod.forward(batch, is_train=True)
        chances = mod.get_outputs()[0].asnumpy()
        losses.append(-np.log(chances[np.arange(len(label)), label]).mean())
        mod.backward()
        mod.update()
    assert np.isfinite(losses).all() and losses[1] < losses[0]
    # What is no parameter in the file, such as an LSTM's first state, stays as it is.
    after, _ = mod.get_params()
    stored = {tensor.name for tensor in onnx.load(path).graph.initializer}
    constants = sorted(set(args) - stored)
    assert constants or not path.stem.startswith(("lstm-", "attention"))
    for name in constants:
        np.testing.assert_array_equal(after[name].asnumpy(), args[name].asnumpy(), err_msg=name)


def test_batch_normalization_keeps_its_averages_as_auxiliary_states():
    symbol, args, states, _, _ = golden(GOLDEN / "resnet18-torchscript.onnx")
    assert len(states) == 40 and set(states) == set(symbol.list_auxiliary_states())
    assert "stem.1.running_mean" in states and "stem.1.weight" in args
    assert sum(n.op is not None and n.op.op_name == "BatchNorm" for n in symbol.graph.nodes) == 20


def test_what_an_exporter_computes_about_shapes_is_folded():
    symbol, _, _, _, _ = golden(GOLDEN / "transformer-torchscript.onnx")
    made = [n.op.op_name for n in symbol.graph.nodes if n.op is not None]
    assert not {"Cast", "Concat", "sqrt"}.intersection(made), made
    assert made.count("_mod_scalar") == 1  # the words' numbers, which may count from the end
    assert len(symbol.graph.nodes) < 130  # of 400 in the file


def test_metadata_is_read_without_importing():
    found = get_model_metadata(GOLDEN / "resnet18-torchscript.onnx")
    assert found == {
        "input_tensor_data": [("input", (0, 3, 32, 32))],
        "output_tensor_data": [("output", (0, 10))],
    }


# -- what imported models are made of ----------------------------------------------------------------


def test_initializers_keep_their_names_and_input_types():
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Add", ["rows", "bias"], ["sum"]),
        helper.make_node("Mul", ["sum", "half"], ["y"]),
    ]
    table, bias = np.arange(8, dtype=np.float32).reshape(4, 2), np.ones(2, np.float32)
    ids = np.array([[0, -1, 2]], np.int64)
    proto = model(nodes, {"ids": ids}, initializers={"table": table, "bias": bias, "half": np.float32(0.5)})
    symbol, args, states = import_model(proto)
    assert sorted(args) == ["bias", "table"] and not states
    assert symbol.infer_type()[0] == [np.float32, np.int64, np.float32]
    np.testing.assert_array_equal(run(proto, ids=ids), (table[ids] + bias) * 0.5)


def test_a_model_exported_for_training_drops_out_while_it_trains():
    """As its batch normalization does; run as a test of the standard, it drops as onnxruntime does."""
    node = helper.make_node("Dropout", ["x", "ratio", "mode"], ["y", "mask"])
    stored = {"ratio": np.float32(0.25), "mode": np.bool_(True)}
    x = np.ones((64, 64), np.float32)
    symbol, _, _ = import_model(model([node], {"x": x}, initializers=stored))
    plan = symbol.memory_plan(mx.cpu(), x=x.shape)
    mx.memplan.check(plan)
    mx.random.seed(3)
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=x.shape)
    trained = executor.forward(is_train=True, x=x)[0].asnumpy()
    for y in (trained, *backend.prepare(model([node], {"x": x}, initializers=stored)).run([x])[:1]):
        assert set(np.unique(y)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
        assert abs((y == 0).mean() - 0.25) < 0.03
    assert (executor.forward(is_train=False, x=x)[0].asnumpy() == 1).all()
    node.attribute.append(helper.make_attribute("seed", 5))
    with pytest.raises(mx.MXLiteError, match="random numbers of a seed"):
        import_model(model([node], {"x": x}, initializers=stored))


@pytest.mark.parametrize(
    ("declared", "example", "given"),
    [
        ((-1, 4), (1, 4), (3, 4)),
        (("seq", "batch_size", 8), (128, 1, 8), (5, 2, 8)),
        ((7, "N", 8), (7, 128, 8), (7, 2, 8)),
        (("n", 3, "h", "w"), (1, 3, 224, 224), (2, 3, 5, 6)),
    ],
)
def test_open_lengths_are_asked_for_with_an_example(declared, example, given):
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": np.ones(given, np.float32)})
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, declared))
    with pytest.raises(OpenShapeError) as asked:
        import_model(proto)
    assert asked.value.example(1) == {"x": example}
    symbol, _, _ = import_model(proto, shapes={"x": given})
    assert symbol.infer_shape(x=given)[1] == [given]


def test_a_length_of_zero_may_be_given():
    """Some exporters write it for a batch that is open."""
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": np.ones((0, 4), np.float32)})
    symbol, _, _ = import_model(proto, shapes={"x": (3, 4)})
    assert symbol.infer_shape(x=(3, 4))[1] == [(3, 4)]
    with pytest.raises(FormatError, match="must be"):
        import_model(proto, shapes={"x": (3, 5)})


def test_a_name_that_two_nodes_make_is_refused():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["y"], name="t")]
    with pytest.raises(FormatError, match="Two nodes make 'y', the second is Tanh 't'"):
        import_model(model(nodes, {"x": np.ones(2, np.float32)}))


def test_parameters_are_not_folded_into_others():
    """Tied weights stay tied: a transposed weight is computed, not stored."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"]),
        helper.make_node("MatMul", ["x", "wt"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    w = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    proto = model(nodes, {"x": X}, initializers={"w": w})
    _, args, _ = import_model(proto)
    assert list(args) == ["w"]
    np.testing.assert_allclose(run(proto, x=X), X @ w.T @ w, rtol=1e-5)


def test_a_gemm_of_a_layer_is_fully_connected():
    w, b = np.ones((4, 3), np.float32), np.arange(4, dtype=np.float32)
    proto = model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)], {"x": X}, initializers={"w": w, "b": b}
    )
    symbol, _, _ = import_model(proto)
    assert [n.op.op_name for n in symbol.graph.nodes if n.op] == ["FullyConnected"]
    np.testing.assert_allclose(run(proto, x=X), X @ w.T + b)


def test_constants_do_not_grow_with_the_batch():
    nodes = [helper.make_node("Where", ["mask", "x", "low"], ["y"])]
    x, mask = np.ones((64, 32, 32), np.float32), np.tri(32, dtype=bool)
    proto = model(nodes, {"x": x}, initializers={"mask": mask, "low": np.float32(-1)})
    _, args, _ = import_model(proto)
    assert sum(a.size for a in args.values()) <= mask.size + 1
    np.testing.assert_array_equal(run(proto, x=x), np.where(mask, x, -1))


@pytest.mark.parametrize("opset, wanted", [(11, [[1, 1], [1, 1]]), (13, [[2, 2], [2, 2]])])
def test_softmax_means_what_its_opset_says(opset, wanted):
    """Up to 12 over all axes from 1 on, since 13 over the last."""
    x = np.zeros((2, 2, 2), np.float32)
    out = run(model([helper.make_node("Softmax", ["x"], ["y"])], {"x": x}, opset=opset), x=x)
    np.testing.assert_allclose(out.sum(-1), np.array(wanted) / 2, rtol=1e-6)


def test_attributes_of_old_opsets_and_inputs_of_new_ones_are_the_same():
    old = helper.make_node("ReduceSum", ["x"], ["y"], axes=[0], keepdims=0)
    new = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    np.testing.assert_array_equal(run(model([old], {"x": X}, opset=11), x=X), X.sum(0))
    np.testing.assert_array_equal(
        run(model([new], {"x": X}, initializers={"axes": np.array([0])}, opset=18), x=X), X.sum(0)
    )
    old = helper.make_node("Clip", ["x"], ["y"], min=1.0, max=2.0)
    new = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    limits = {"low": np.float32(1), "high": np.float32(2)}
    for proto in (model([old], {"x": X}, opset=6), model([new], {"x": X}, initializers=limits, opset=13)):
        np.testing.assert_array_equal(run(proto, x=X), X.clip(1, 2))


def test_a_branch_is_chosen_and_a_loop_unrolled_while_importing():
    def body(nodes, inputs, outputs):
        infos = [helper.make_tensor_value_info(i, t, None) for i, t in inputs]
        return helper.make_graph(
            nodes, "body", infos, [helper.make_empty_tensor_value_info(o) for o in outputs]
        )

    twice = body([helper.make_node("Add", ["x", "x"], ["r"])], [], ["r"])
    same = body([helper.make_node("Identity", ["x"], ["r"])], [], ["r"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=twice, else_branch=same)
    for condition, factor in ((True, 2), (False, 1)):
        proto = model([node], {"x": X}, initializers={"c": np.array(condition)})
        np.testing.assert_array_equal(run(proto, x=X), X * factor)
    with pytest.raises(NotSupportedError, match=r"If 'y'.*'cond' must be known.*'c'"):
        import_model(model([node], {"x": X, "c": np.array(True)}))

    steps = body(
        [helper.make_node("Add", ["h", "x"], ["h2"]), helper.make_node("Identity", ["c"], ["c2"])],
        [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("h", TensorProto.FLOAT)],
        ["c2", "h2", "h2"],
    )
    node = helper.make_node("Loop", ["count", "", "x"], ["last", "y"], body=steps)
    proto = model([node], {"x": X}, initializers={"count": np.array(3)})
    np.testing.assert_array_equal(run(proto, x=X), np.stack([X * 2, X * 3, X * 4]))


@pytest.mark.parametrize(
    ("op", "how", "mean", "deviation"),
    [
        ("RandomUniform", {"low": 2.0, "high": 6.0, "shape": [4000]}, 4.0, 4 / 12**0.5),
        ("RandomNormal", {"mean": 3.0, "scale": 0.5, "shape": [4000]}, 3.0, 0.5),
        ("RandomUniformLike", {}, 0.5, 1 / 12**0.5),
        ("RandomNormalLike", {"seed": 1.0, "dtype": TensorProto.FLOAT}, 0.0, 1.0),
        ("Bernoulli", {}, 0.2, 0.4),
    ],
)
def test_numbers_are_drawn_as_the_node_says(op, how, mean, deviation):
    inputs = [] if "shape" in how else ["x"]
    nodes = [helper.make_node(op, inputs, ["r"], **how), helper.make_node("Mul", ["r", "one"], ["y"])]
    x = np.full(4000, 0.2, np.float32)
    drawn = run(model(nodes, {"x": x}, initializers={"one": np.float32(1)}), x=x)
    assert abs(drawn.mean() - mean) < 0.1 * max(deviation, 1)
    assert abs(drawn.std() - deviation) < 0.1 * deviation


def test_functions_of_the_model_are_called():
    square = helper.make_function(
        "own", "AddSquare", ["a", "b"], ["r"],
        [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Add", ["s", "b"], ["r"])],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    proto = model(
        [helper.make_node("AddSquare", ["x", "x"], ["y"], domain="own")], {"x": X}, functions=[square]
    )
    proto.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(run(proto, x=X), X * X + X)


def test_a_function_that_calls_itself_is_refused():
    own = helper.make_function(
        "own",
        "F",
        ["a"],
        ["r"],
        [helper.make_node("F", ["a"], ["r"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )
    proto = model([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": X}, functions=[own])
    with pytest.raises(FormatError, match="levels deep"):
        import_model(proto)


# -- what cannot be imported -------------------------------------------------------------------------


def test_open_lengths_need_a_shape():
    path = GOLDEN / "resnet18-torchscript.onnx"
    with pytest.raises(FormatError, match=r"input 'input' is \(batch, 3, 32, 32\): give its shape") as raised:
        import_model(path)
    assert str(raised.value).endswith("import_model(path, shapes={'input': (1, 3, 32, 32)}).")
    with pytest.raises(
        FormatError, match=r"'input' must be \('batch', 3, 32, 32\), got the shape \(2, 1, 32, 32\)"
    ):
        import_model(path, shapes={"input": (2, 1, 32, 32)})
    with pytest.raises(
        UnknownNameError, match=r"no input 'inputs'; it has \['input'\]. Did you mean 'input'"
    ):
        import_model(path, shapes={"inputs": (2, 3, 32, 32)})


def test_all_inputs_whose_lengths_are_open_are_named_at_once():
    proto = model([helper.make_node("Add", ["x", "b"], ["y"])], {"x": X, "b": X})
    x, b = proto.graph.input
    x.type.tensor_type.shape.dim[0].dim_param = "batch"
    b.type.tensor_type.ClearField("shape")
    with pytest.raises(
        OpenShapeError, match=r"'x' is \(batch, 3\), input 'b' is of any shape: give"
    ) as raised:
        import_model(proto)
    assert raised.value.example("N") == {"x": ("N", 3), "b": ("N", 3, 224, 224)}
    net, _, _ = import_model(proto, {"x": (2, 3), "b": (2, 3)})
    assert net.list_arguments() == ["x", "b"]


def test_a_shape_that_depends_on_an_input_is_refused_by_name():
    proto = model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="flat")], {"x": X, "shape": np.array([6])}
    )
    with pytest.raises(
        NotSupportedError, match=r"Reshape 'flat' \(opset 18\): .*'shape' must be known .*'shape'"
    ):
        import_model(proto)
    np.testing.assert_array_equal(backend.run_model(proto, [X, np.array([6])])[0], X.reshape(6))


def test_wrong_models_name_the_node():
    for node, text in (
        (
            helper.make_node("Add", ["x", "nothing"], ["y"]),
            "Add 'y' .opset 18.: reads 'nothing', which nothing before",
        ),
        (
            helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0]),
            "Transpose 'y'.*perm .0, 0. must name each",
        ),
        (helper.make_node("Concat", ["x"], ["y"]), "Concat 'y'.*needs the attribute 'axis'"),
        (helper.make_node("Concat", ["x"], ["y"], axis=1.5), "attribute 'axis' must be of kind 'i', got 'f'"),
        (helper.make_node("Softmax", ["x"], ["y"], axis=7), "axis 7 is not one of 2 axes"),
        (helper.make_node("MatMul", ["x", "x"], ["y"]), r"\(2, 3\) and \(2, 3\) do not fit a matrix product"),
        (helper.make_node("Relu", [], ["y"]), "Relu 'y'.*number 1 is missing"),
        (helper.make_node("Rlu", ["x"], ["y"]), "Rlu 'y'.*no such operator in the standard"),
    ):
        with pytest.raises(FormatError, match=text):
            import_model(model([node], {"x": X}))


def test_files_that_are_no_models_are_refused(tmp_path):
    for content in (b"", b"hello", (GOLDEN / "lstm.onnx").read_bytes()[:-100]):
        path = tmp_path / "broken.onnx"
        path.write_bytes(content)
        for source in (path, content):
            with pytest.raises(FormatError):
                import_model(source, shapes={"input": (3, 12)})


def test_sizes_are_checked_before_anything_is_allocated():
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, initializers={"w": X})
    tensor = proto.graph.initializer[0]
    tensor.dims[:] = [1 << 40, 1 << 20]
    with pytest.raises(
        FormatError, match=r"initializer 'w'.*takes 4611686018427387904 bytes, but 24 are there"
    ):
        import_model(proto)
    tensor.dims[:] = [-2, -3]
    with pytest.raises(FormatError, match="cannot be negative"):
        import_model(proto)
    large = helper.make_node("ConstantOfShape", ["shape"], ["big"])
    proto = model(
        [large, helper.make_node("Shape", ["big"], ["y"])], {}, initializers={"shape": np.array([1 << 40])}
    )
    symbol, args, _ = import_model(proto)  # never made, only asked for its shape
    assert symbol.eval(**args)[0].asnumpy().tolist() == [1 << 40]
    endless = model(
        [helper.make_node("Range", ["a", "b", "c"], ["y"])], {}, initializers={"a": 0, "b": 1 << 50, "c": 1}
    )
    with pytest.raises(NotSupportedError, match="elements"):
        import_model(endless)


def external(folder, location, **about):
    """A model whose weight is stored in another file."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, initializers={"w": X})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **about}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_read_from_beside_the_model_and_nowhere_else(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"1234" + X.tobytes())
    (tmp_path / "secret.bin").write_bytes(X.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = external(folder, "weights.bin", offset=4, length=24)
    _, args, _ = import_model(path)
    np.testing.assert_array_equal(args["w"].asnumpy(), X)
    with pytest.raises(FormatError, match="give import_model the model's path"):
        import_model(path.read_bytes())
    for location in (
        "../secret.bin",
        str(tmp_path / "secret.bin"),
        "link.bin",
        "a/../../secret.bin",
        "",
        ".",
    ):
        with pytest.raises(FormatError, match="initializer 'w' is stored in"):
            import_model(external(folder, location))
    for about in (dict(offset=5), dict(offset=-4), dict(length=12), dict(offset="0x4"), dict(offset=10**18)):
        with pytest.raises(FormatError, match="initializer 'w'"):
            import_model(external(folder, "weights.bin", **about))
    with pytest.raises(FormatError, match=r"'none\.bin', but that file is missing"):
        import_model(external(folder, "none.bin"))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_models_give_our_errors_or_run(seed):
    """Bytes changed, fields taken out: whatever comes of it, it is no crash and no foreign exception."""
    draw = random.Random(seed)
    for path in draw.sample(EXPORTED, 4):
        whole = path.read_bytes()
        for _ in range(12):
            content = bytearray(whole)
            for _ in range(draw.choice((1, 3, 20))):
                content[draw.randrange(len(content))] = draw.randrange(256)
            refused_or_imported(bytes(content), path)
        proto = onnx.load(path)
        for _ in range(12):
            damaged = onnx.ModelProto()
            damaged.CopyFrom(proto)
            node = draw.choice(damaged.graph.node)
            for field in (node.attribute, node.input, node.output):
                if field and draw.random() < 0.5:
                    del field[draw.randrange(len(field))]
            if node.attribute and draw.random() < 0.5:
                attribute = draw.choice(node.attribute)
                attribute.i = draw.choice((-1, 0, 1 << 40))
                attribute.ints[:] = [draw.choice((-5, 0, 1, 1 << 40)) for _ in attribute.ints]
            if draw.random() < 0.3:
                node.op_type = draw.choice(damaged.graph.node).op_type
            refused_or_imported(damaged, path)


def refused_or_imported(source, path):
    shape = np.load(path.with_suffix(".npz"))["input"].shape
    try:
        import_model(source, shapes={"input": shape})
    except MXLiteError as error:
        assert len(str(error)) > 10


def test_without_the_onnx_package_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['onnx'] = None\n"
        "import mxlite as mx\n"
        "try:\n    mx.formats.onnx.import_model('net.onnx')\n"
        "except mx.MXLiteError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'mxlite[onnx]'" in done.stdout
