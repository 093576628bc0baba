"""mx.test_utils finds what is wrong and lets pass what is right; its random inputs are MXNet 1.9.1's."""

from __future__ import annotations

import gzip
import io
import struct
import urllib.error

import numpy as np
import pytest

import mxlite as mx
from mxlite import test_utils as tu
from mxlite.core import BindError, MXLiteError
from mxlite.test_utils import downloading
from mxlite.test_utils.https import HttpsOnly

DATA = mx.sym.Variable("data")
NET = mx.sym.FullyConnected(DATA, num_hidden=3, name="fc")
X, W, B, G = (np.random.RandomState(i).randn(*s) for i, s in enumerate([(4, 5), (3, 5), (3,), (4, 3)]))
GRADS = [G @ W, G.T @ X, G.sum(0)]


class WrongGradient(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * in_data[0])  # half of what it should be


@mx.operator.register("test_utils_wrong_gradient")
class WrongGradientProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return WrongGradient()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_right_gradients_pass_finite_differences(dtype):
    tu.check_numeric_gradient(NET, [X, W, B], dtype=dtype)
    tu.check_numeric_gradient(
        NET, {"data": X, "fc_weight": W, "fc_bias": B}, grad_nodes={"data": "add", "fc_weight": "null"}
    )
    norm = mx.sym.BatchNorm(DATA, fix_gamma=False, name="bn")
    values = [np.random.RandomState(1).randn(4, 3, 2, 2), np.ones(3), np.ones(3)]
    tu.check_numeric_gradient(norm, values, [np.zeros(3), np.ones(3)], rtol=0.16, atol=1e-2, dtype=dtype)


def test_wrong_gradients_fail_finite_differences():
    wrong = mx.sym.Custom(DATA, op_type="test_utils_wrong_gradient")
    with pytest.raises(AssertionError, match="NUMERICAL_data and BACKWARD_data differ in 6 of 6"):
        tu.check_numeric_gradient(wrong, [np.random.RandomState(2).rand(2, 3) + 1])
    tu.check_symbolic_forward(wrong, [np.array([[2.0]])], [np.array([[4.0]])])
    with pytest.raises(ValueError, match="lost in float32"):
        tu.check_numeric_gradient(NET, [X, W, B], numeric_eps=1e-7)
    with pytest.raises(BindError, match="has the arguments"):
        tu.check_numeric_gradient(NET, {"data": X})


def test_values_and_gradients_against_expected_ones():
    (out,) = tu.check_symbolic_forward(NET, [X, W, B], [X @ W.T + B], rtol=1e-4, atol=1e-5)
    assert out.shape == (4, 3)
    with pytest.raises(AssertionError, match="EXPECTED_fc_output"):
        tu.check_symbolic_forward(NET, [X, W, B], {"fc_output": X @ W.T})
    for request in ("write", "add", {"data": "add", "fc_weight": "write", "fc_bias": "null"}):
        grads = tu.check_symbolic_backward(NET, [X, W, B], [G], GRADS, 1e-4, 1e-4, grad_req=request)
        assert set(grads) == {"data", "fc_weight", "fc_bias"}
    tu.check_symbolic_backward(
        NET, [X, W, B], {"fc_output": mx.nd.array(G)}, {"data": GRADS[0]}, 1e-4, 1e-4, dtype=np.float32
    )
    with pytest.raises(AssertionError, match="EXPECTED_fc_bias"):
        tu.check_symbolic_backward(NET, [X, W, B], [G], [*GRADS[:2], GRADS[2] + 1], 1e-4, 1e-4)
    for request in ("write", "add", "null"):
        stypes = {"data": "csr", "fc_weight": "row_sparse"}
        grads = tu.check_symbolic_backward(
            NET, [X, W, B], [G], GRADS, 1e-4, 1e-4, grad_req=request, grad_stypes=stypes
        )
        assert [grads[n].stype for n in ("data", "fc_weight", "fc_bias")] == ["csr", "row_sparse", "default"]
    tu.check_numeric_gradient(NET, [X, W, B], rtol=1e-2, atol=1e-3, grad_stype_dict=stypes)


def test_results_agree_over_dtypes_or_are_named():
    conv = mx.sym.Convolution(DATA, num_filter=3, kernel=(3, 3), name="conv")
    entries = [
        {"ctx": mx.cpu(), "data": (2, 2, 6, 6), "type_dict": {"data": t}}
        for t in ("float32", "float64", "float16")
    ]
    truth = tu.check_consistency(conv, entries)
    assert sorted(truth) == ["conv_bias", "conv_output", "conv_weight", "data"]
    assert truth["conv_output"].dtype == np.float64
    with pytest.raises(AssertionError, match="'doubled_output' of entry 1"):
        tu.check_consistency(
            [mx.sym.broadcast_mul(DATA, mx.sym.Variable("w"), name="doubled"),
             mx.sym.broadcast_add(DATA, mx.sym.Variable("w"), name="doubled")],
            [{"ctx": mx.cpu(), "data": (2, 2), "w": (2, 2)}] * 2,
        )  # fmt: skip
    with pytest.raises(ValueError, match="at least two"):
        tu.check_consistency(conv, entries[:1])


def test_small_helpers():
    assert tu.simple_forward(DATA * 2, data=np.ones((2, 2))).tolist() == [[2, 2], [2, 2]]
    assert (
        tu.check_speed(NET, data=(4, 5), N=2) > 0 and tu.check_speed(NET, data=(4, 5), N=2, typ="forward") > 0
    )
    a = mx.nd.ones((2, 2))
    assert tu.same_array(a, a[:]) and not tu.same_array(a, a.copy())
    assert tu.default_context() == mx.cpu() and list(tu.list_gpus()) == list(range(mx.num_gpus()))
    tu.set_default_context(mx.cpu(3))
    try:
        assert tu.default_context() == mx.cpu(3) == mx.nd.ones(1).context
    finally:
        tu.set_default_context(mx.cpu(0))
    x = np.arange(6.0).reshape(1, 2, 3)
    assert tu.np_reduce(x, (0, -1), True, np.sum).tolist() == [[[3], [12]]]
    assert tu.collapse_sum_like(x, (2, 1)).tolist() == [[3], [12]]
    assert tu.create_2d_tensor(2, 3).asnumpy().tolist() == [[0, 0, 0], [1, 1, 1]]
    assert tu.assign_each(x, lambda v: v + 1).sum() == 21
    tries = []

    @tu.retry(3)
    def fails_twice():
        tries.append(1)
        assert len(tries) == 3

    fails_twice()
    assert len(tries) == 3


def test_a_random_sparse_array_may_store_no_row():
    made, (values, rows) = tu.rand_sparse_ndarray((3, 2), "row_sparse", rsp_indices=[])
    assert (made.asnumpy() == 0).all() and values.shape == (0, 2) and rows.shape == (0,)


def test_random_inputs_are_mxnets():
    np.random.seed(5)
    assert tu.rand_shape_3d() == (4, 7, 7)
    np.testing.assert_allclose(
        tu.random_arrays((2, 2)), [[-0.02330375, 0.8417777], [1.3675855, 0.5747077]], rtol=1e-6
    )
    np.testing.assert_allclose(
        tu.rand_ndarray((2, 2)).asnumpy(), [[-1.8857625, 0.17092536], [-0.4030933, 1.6376284]], rtol=1e-6
    )
    assert tu.random_sample(list(range(10)), 3) == [0, 3, 7]
    assert len(tu.rand_shape_nd(4, 2)) == 4 and len(tu.rand_shape_2d()) == 2


@pytest.mark.parametrize(
    "a, b",
    [(np.ones(3), np.array([1, np.nan, 1])), (1.0, 1.1), (mx.nd.ones(2), np.full(2, 2.0)), (1, 2),
     (np.array([1, 2]), np.array([1, 3])), (mx.nd.ones((2, 2)), mx.nd.zeros((2, 2)))],
)  # fmt: skip
def test_different_arrays_are_different(a, b):
    assert not tu.same(a, b)
    with pytest.raises(AssertionError, match="rtol="):
        tu.assert_almost_equal(a, b)


def test_near_arrays_are_near():
    tu.assert_almost_equal(mx.nd.ones((2, 3)), np.ones((1, 3)))
    with pytest.raises(AssertionError, match="shapes"):
        tu.assert_almost_equal(mx.nd.ones((2, 3)), np.ones((1, 3)), use_broadcast=False)
    tu.assert_almost_equal(np.ones(2, "float16"), np.full(2, 1.05))
    tu.assert_almost_equal(np.ones(2), np.full(2, 1.05), rtol={np.dtype("float64"): 0.1})
    tu.assert_almost_equal(mx.nd.ones(2, dtype="bfloat16"), np.full(2, 1.01, "float32"))
    tu.assert_almost_equal_ignore_nan(np.array([1, np.nan]), np.array([1, 7.0]))
    tu.assert_almost_equal_with_err(np.zeros(10), np.eye(10)[0], etol=0.1)
    with pytest.raises(AssertionError):
        tu.assert_almost_equal_with_err(np.zeros(10), np.eye(10)[0], etol=0.05)
    tu.assert_exception(lambda: 1 / 0, ZeroDivisionError)
    with pytest.raises(AssertionError, match="raised no KeyError"):
        tu.assert_exception(lambda: 1, KeyError)
    assert tu.find_max_violation(np.array([1.0, 2, 3]), np.array([1.0, 4, 3]), 0, 1)[0] == (1,)


# -- files ----------------------------------------------------------------------------------------


class Answer(io.BytesIO):
    def __init__(self, body, headers):
        super().__init__(body)
        self.headers = headers


@pytest.fixture
def network(monkeypatch, tmp_path):
    """A list of what the network answers: bodies with headers, or errors."""
    answers = []

    def answer(url, timeout):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return Answer(*found)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloading, "_open", answer)
    monkeypatch.setattr(downloading.time, "sleep", lambda seconds: None)
    return answers


def test_a_download_is_a_file_and_is_not_repeated(network, tmp_path):
    network.append((b"content", {"Content-Length": "7"}))
    assert tu.download("https://example.org/a/net.params?x=1", dirname="models") == "models/net.params"
    assert (tmp_path / "models" / "net.params").read_bytes() == b"content"
    assert tu.download("http://example.org/a/net.params", dirname="models") == "models/net.params"  # is there
    network.append((b"new", {}))
    tu.download("https://example.org/net.params", dirname="models", overwrite=True)
    assert (tmp_path / "models" / "net.params").read_bytes() == b"new"


def test_downloads_are_tried_again_but_not_for_ever(network, tmp_path):
    network += [OSError("reset"), (b"cut", {"Content-Length": "9"}), (b"whole", {"Content-Length": "5"})]
    assert tu.download("https://example.org/f") == "f" and (tmp_path / "f").read_bytes() == b"whole"
    network += [OSError("reset")] * 2
    with pytest.raises(OSError, match="reset"):
        tu.download("https://example.org/g", retries=1)
    network.append(urllib.error.HTTPError("u", 404, "not found", {}, None))
    with pytest.raises(urllib.error.HTTPError):
        tu.download("https://example.org/g")
    assert not network and not (tmp_path / "g").exists()


def test_downloads_that_are_refused_leave_no_file(network, tmp_path):
    for url in ("http://example.org/f", "file:///etc/passwd", "ftp://example.org/f"):
        with pytest.raises(MXLiteError, match="https"):
            tu.download(url)
    for headers in ({"Content-Length": "11"}, {}):
        network.append((b"x" * 11, headers))
        with pytest.raises(MXLiteError, match="most_bytes, 10"):
            tu.download("https://example.org/f", most_bytes=10)
    redirect = HttpsOnly()
    with pytest.raises(MXLiteError, match="https"):
        redirect.redirect_request(None, None, 302, "", {}, "http://example.org/f")
    with pytest.raises(MXLiteError, match="no file's name"):
        tu.download("https://example.org/")
    assert list(tmp_path.iterdir()) == []


def test_mnist_is_read_where_it_is(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="load_digits"):
        tu.get_mnist()
    (tmp_path / "data").mkdir()
    images = np.arange(4 * 28 * 28).reshape(4, 28, 28).astype("uint8")
    for part in ("train", "t10k"):
        head = struct.pack(">BBBBIII", 0, 0, 8, 3, 4, 28, 28)
        (tmp_path / "data" / f"{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        labels = struct.pack(">BBBBI", 0, 0, 8, 1, 4) + bytes(range(4))
        (tmp_path / "data" / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    mnist = tu.get_mnist()
    assert mnist["train_data"].shape == (4, 1, 28, 28) and mnist["test_label"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(mnist["train_data"][:, 0] * 255, images, rtol=1e-6)
    train, test = tu.get_mnist_iterator(2, (784,))
    assert train.provide_data == test.provide_data == [("data", (2, 784))]
    dummy = tu.DummyIter(train)
    assert dummy.next() is dummy.next()
