"""`mx.nd.contrib`, `mx.sym.sparse` and their like: operators under the names MXNet files them."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops


@pytest.mark.parametrize("namespace", [mx.nd.contrib, mx.sym.contrib, mx.nd.sparse, mx.sym.sparse])
def test_a_namespace_lists_and_finds_its_operators(namespace):
    names = [n for n in dir(namespace) if not n.startswith("_")]
    assert "SparseEmbedding" in names or "dot" in names
    for name in names:
        assert callable(getattr(namespace, name)), name


def test_contrib_is_the_operators_of_that_prefix():
    assert {"_contrib_" + n for n in dir(mx.sym.contrib) if not n.startswith("_")} >= {
        n for n in ops.TABLE if n.startswith("_contrib_")
    }
    with pytest.raises(AttributeError, match=r"contrib has no 'SparseEmbeding'\. Did you mean"):
        mx.nd.contrib.SparseEmbeding  # noqa: B018
    with pytest.raises(AttributeError, match=r"mx\.sym\.contrib has no 'dot'"):
        mx.sym.contrib.dot  # noqa: B018


def test_sparse_embedding_is_a_dense_look_up():
    table = mx.nd.array(np.arange(12).reshape(4, 3))
    got = mx.nd.contrib.SparseEmbedding(mx.nd.array([2, 0]), table, input_dim=4, output_dim=3)
    assert got.asnumpy().tolist() == [[6, 7, 8], [0, 1, 2]]
    net = mx.sym.contrib.SparseEmbedding(mx.sym.Variable("data"), input_dim=4, output_dim=3, name="table")
    assert net.list_arguments() == ["data", "table_weight"]
    assert net.infer_shape(data=(2, 5))[1] == [(2, 5, 3)]


def test_sparse_names_run_on_dense_arrays():
    a = mx.nd.array([[1, 0], [0, 2]])
    assert mx.nd.sparse.dot(a, a).asnumpy().tolist() == [[1, 0], [0, 4]]
    net = mx.sym.sparse.dot(mx.sym.Variable("a"), mx.sym.Variable("b"))
    assert net.infer_shape(a=(2, 3), b=(3, 4))[1] == [(2, 4)]
