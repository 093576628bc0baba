"""Sparse arrays: what they refuse, and what MXNet has no numbers for. See also `test_mxnet_sparse.py`."""

import pickle

import numpy as np
import pytest

import mxlite as mx

X = np.array([[0, 1, 0], [2, 0, 3]], "float32")


@pytest.fixture
def csr():
    return mx.nd.sparse.csr_matrix(X)


@pytest.fixture
def rows():
    return mx.nd.sparse.row_sparse_array(([[1.0, 2], [3, 4]], [3, 1]), shape=(5, 2))


def test_pairs_add_up_and_come_in_any_order():
    a = mx.nd.sparse.csr_matrix(([1, 2, 4], ([1, 0, 1], [2, 1, 2])), shape=(2, 3))
    assert a.asnumpy().tolist() == [[0, 2, 0], [0, 0, 5]]
    assert a.indptr.asnumpy().tolist() == [0, 1, 2]


def test_rows_are_kept_in_order(rows):
    assert rows.indices.asnumpy().tolist() == [1, 3]
    assert rows.data.asnumpy().tolist() == [[3, 4], [1, 2]]


def test_two_csr_arrays_are_multiplied_where_both_store(csr):
    other = mx.nd.sparse.csr_matrix(np.array([[5, 7, 0], [2, 0, 0]], "float32"))
    product = csr * other
    assert product.stype == "csr" and product.asnumpy().tolist() == [[0, 7, 0], [4, 0, 0]]
    assert product.indices.asnumpy().tolist() == [1, 0]


def test_a_sparse_array_survives_pickle_and_copies(csr, rows):
    for a in (csr, rows):
        back = pickle.loads(pickle.dumps(a))
        assert back.stype == a.stype and (back.asnumpy() == a.asnumpy()).all()
        copy = a.copy()
        copy *= 2
        assert (copy.asnumpy() == 2 * a.asnumpy()).all() and a.asnumpy().max() < 5


def test_indices_that_do_not_fit_are_found():
    wrong = mx.nd.sparse.csr_matrix(([1, 2], [0, 9], [0, 1, 2]), shape=(2, 3))
    for act in (wrong.check_format, wrong.asnumpy, lambda: mx.nd.sparse.dot(wrong, mx.nd.ones((3, 2)))):
        with pytest.raises(mx.FormatError, match="3 columns, not column 9"):
            act()
    wrong.check_format(full_check=False)
    with pytest.raises(mx.FormatError, match="3 row starts"):
        mx.nd.sparse.csr_matrix(([1, 2], [0, 1], [0, 2]), shape=(2, 3)).check_format(False)
    with pytest.raises(mx.FormatError, match="row 0 ends before it begins"):
        mx.nd.sparse.csr_matrix(([1, 2], [0, 1], [0, -1, 2]), shape=(2, 3)).check_format()
    with pytest.raises(mx.FormatError, match="once"):
        mx.nd.sparse.row_sparse_array(([[1], [2]], [1, 1]), shape=(2, 1)).check_format()


@pytest.mark.parametrize("columns, first, second", [([0, 2, 1], 2, 1), ([2, 1, 1], 1, 1)])
def test_columns_of_a_row_that_do_not_rise_are_found(columns, first, second):
    mixed = mx.nd.sparse.csr_matrix(([7, 8, 9], columns, [0, 1, 1, 3]), shape=(3, 4))
    with pytest.raises(mx.FormatError, match=f"row 2 has {first} before {second}"):
        mixed.check_format()
    mixed.check_format(full_check=False)
    product = mx.nd.dot(mixed, mx.nd.array([[1], [10], [100], [0]]))  # products take them as they are
    assert product.asnumpy()[2] == [0, 10, 100][second] * 9 + [0, 10, 100][first] * 8
    mx.nd.sparse.csr_matrix(([7, 8, 9], [3, 1, 0], [0, 1, 2, 3]), shape=(3, 4)).check_format()


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_a_sparse_out_gets_what_is_made_dense(stype):
    ones = mx.nd.ones((2, 3))
    out = mx.nd.zeros((2, 3), stype=stype)
    assert mx.nd.broadcast_add(ones, ones * 2, out=out) is out
    assert out.stype == stype and (out.asnumpy() == 3).all()
    mx.nd.random.uniform(1, 2, out=out)
    dense = mx.nd.zeros((2, 3))
    for made in (dense, out):
        mx.random.seed(3)
        mx.nd.random.normal(out=made)
    assert (out.asnumpy() == dense.asnumpy()).all() and dense.asnumpy().any()
    halves = [mx.nd.zeros((2, 1), stype=stype), mx.nd.zeros((2, 1))]
    mx.nd.split(mx.nd.array([[1, 2], [3, 4]]), num_outputs=2, axis=1, out=halves)
    assert [h.asnumpy().ravel().tolist() for h in halves] == [[1, 3], [2, 4]]
    assert [h.stype for h in halves] == [stype, "default"]
    with mx.autograd.record():
        mx.nd.broadcast_mul(ones, ones, out=out)
    assert out.stype == stype and (out.asnumpy() == 1).all()
    with pytest.raises(mx.ShapeError, match="out to be of shape"):
        mx.nd.broadcast_add(ones, ones, out=mx.nd.zeros((3, 3), stype=stype))


def test_a_sparse_weight_is_initialized_in_place():
    weight = mx.nd.zeros((40, 3), stype="row_sparse")
    mx.init.Uniform(2)(mx.init.InitDesc("w_weight"), weight)
    drawn = weight.asnumpy()
    assert weight.stype == "row_sparse" and len(weight.indices) == 40 and abs(drawn).max() > 1


@pytest.mark.parametrize(
    "act, error, words",
    [
        (lambda a: a.reshape((3, 2)), mx.OpAttributeError, "cannot be reshaped"),
        (lambda a: a.tostype("row_sparse"), mx.OpAttributeError, "becomes 'default' or 'csr'"),
        (lambda a: a[0:2:2], IndexError, "without a step"),
        (lambda a: a[5], IndexError, "out of range"),
        (lambda a: a.__setitem__(0, 1), IndexError, r"a\[:\] = value"),
        (lambda a: a.copyto(mx.nd.ones((2, 2))), mx.ShapeError, "equal shapes"),
        (lambda a: a.as_in_context(mx.gpu(0)), mx.DeviceError, "Sparse arrays are on the CPU"),
        (lambda a: mx.nd.ones((3,)).tostype("csr"), mx.ShapeError, "2 axes"),
        (lambda a: mx.nd.ones((2, 3)).attach_grad(stype="rows"), mx.OpAttributeError, "stype must be"),
        (lambda a: mx.nd.sparse.array([1, 2]), TypeError, "sparse.array copies a sparse array"),
        (lambda a: mx.nd.sparse.csr_matrix(a, shape=(3, 2)), mx.ShapeError, "is \\(2, 3\\)"),
        (lambda a: mx.nd.sparse.retain(a, mx.nd.array([0])), mx.OpAttributeError, "needs a row_sparse"),
        (lambda a: mx.nd.sparse.dot(a, mx.nd.ones((2, 3))), mx.ShapeError, "contracted"),
    ],
)
def test_what_a_sparse_array_cannot_do_is_said(csr, act, error, words):
    with pytest.raises(error, match=words):
        act(csr)


def test_a_dense_array_takes_a_sparse_one(csr):
    dense = mx.nd.zeros((2, 3))
    dense[:] = csr
    assert (dense.asnumpy() == X).all()
    result = mx.nd.zeros((2, 3))
    mx.nd.elemwise_add(csr, csr, out=result)
    assert (result.asnumpy() == 2 * X).all()


def test_the_gradient_of_a_product_with_a_csr_matrix_is_recorded(csr):
    weight = mx.nd.array([[1, 2], [3, 4], [5, 6]])
    weight.attach_grad()
    with mx.autograd.record():
        loss = (mx.nd.sparse.dot(csr, weight) * mx.nd.array([[1, 2], [3, 4]])).sum()
    loss.backward()
    assert weight.grad.asnumpy().tolist() == (X.T @ [[1, 2], [3, 4]]).tolist()


def test_long_sums_are_made_in_pieces(monkeypatch):
    from mxlite.ops.linalg import sparse_dot

    draw = np.random.RandomState(0)
    x = draw.randn(30, 20).astype("float32") * (draw.rand(30, 20) < 0.3)
    x[[0, 7, 29]] = 0
    y, z = draw.randn(20, 4).astype("float32"), draw.randn(30, 4).astype("float32")
    csr = mx.nd.sparse.csr_matrix(x)
    monkeypatch.setattr(sparse_dot, "_PRODUCTS", 24)
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    got = mx.nd.sparse.dot(csr, mx.nd.array(y)).asnumpy()
    np.testing.assert_allclose(got, x @ y, rtol=1e-5, atol=1e-6)
    got = mx.nd.sparse.dot(csr, mx.nd.array(z), transpose_a=True).asnumpy()
    np.testing.assert_allclose(got, x.T @ z, rtol=1e-5, atol=1e-6)


class FakeScipyMatrix:
    """What `scipy.sparse` matrices have, where scipy is not there."""

    shape, dtype = (2, 3), np.dtype("float64")
    data, indices, indptr = np.array([1.0, 2, 3]), np.array([1, 0, 2], "int32"), np.array([0, 1, 3], "int32")

    def tocsr(self):
        return self


def test_a_matrix_of_scipy_becomes_a_csr_array():
    for make in (mx.nd.sparse.csr_matrix, mx.nd.sparse.array, mx.nd.array):
        made = make(FakeScipyMatrix())
        assert made.stype == "csr" and (made.asnumpy() == X).all()
        assert made.indices.dtype == np.int64


def test_what_scipy_has_twice_or_in_another_order_is_summed_and_ordered():
    matrix = FakeScipyMatrix()
    matrix.data, matrix.indices, matrix.indptr = (
        np.arange(1.0, 6),
        np.array([2, 0, 2, 1, 1]),
        np.array([0, 3, 5]),
    )
    made = mx.nd.sparse.csr_matrix(matrix)
    made.check_format()
    assert made.asnumpy().tolist() == [[2, 0, 4], [0, 9, 0]] and made._num_aux == 2


def test_columns_that_no_element_tells_are_asked_for():
    with pytest.raises(mx.ShapeError, match="how many columns the 3 rows have; give shape"):
        mx.nd.sparse.csr_matrix(([], [], [0, 0, 0, 0]))


@pytest.mark.parametrize("handle", ["pad", "discard", "roll_over"])
def test_batches_of_a_csr_matrix_are_those_of_the_dense_one(handle):
    draw = np.random.RandomState(1)
    x = (draw.randn(7, 4) * (draw.rand(7, 4) < 0.4)).astype("float32")
    x[2] = 0
    given = {"batch_size": 3, "shuffle": True, "last_batch_handle": handle, "seed": 3}
    dense, csr = mx.io.NDArrayIter(x, **given), mx.io.NDArrayIter(mx.nd.sparse.csr_matrix(x), **given)
    assert csr.provide_data == dense.provide_data
    for _ in range(2):
        for mine, theirs in zip(csr, dense, strict=True):
            assert mine.data[0].stype == "default" and mine.pad == theirs.pad
            np.testing.assert_array_equal(mine.data[0].asnumpy(), theirs.data[0].asnumpy())
        csr.reset()
        dense.reset()


def test_random_sparse_arrays_are_as_dense_as_is_said():
    np.random.seed(0)
    csr, (indptr, indices, data) = mx.test_utils.rand_sparse_ndarray((20, 30), "csr", density=0.2)
    assert csr.stype == "csr" and indptr[-1] == len(indices) == len(data) and 60 < len(data) < 180
    csr.check_format()
    rows, (data, indices) = mx.test_utils.rand_sparse_ndarray((9, 2), "row_sparse", rsp_indices=[1, 4])
    assert rows.stype == "row_sparse" and indices.tolist() == [1, 4] and data.shape == (2, 2)
    assert mx.test_utils.rand_ndarray((3, 4), "csr", density=1.0, modifier_func=lambda x: 2).sum() == 24
    with pytest.raises(mx.OpAttributeError, match="'uniform' or 'powerlaw', got 'normal'"):
        mx.test_utils.rand_sparse_ndarray((3, 4), "csr", distribution="normal")


def test_a_row_sparse_array_may_have_one_axis():
    a = mx.nd.array([1, 0, 2]).tostype("row_sparse")
    assert a.indices.asnumpy().tolist() == [0, 2]
    both = a + mx.nd.sparse.row_sparse_array(([5], [1]), shape=(3,))
    assert both.stype == "row_sparse" and both.asnumpy().tolist() == [1, 5, 2]
    assert mx.nd.sparse.zeros("row_sparse", (2,)).asnumpy().tolist() == [0, 0]
    with pytest.raises(mx.ShapeError, match="at least 1 axis"):
        mx.nd.sparse.zeros("row_sparse", ())


def test_a_parabola_through_0_keeps_a_csr_array_sparse(csr):
    through, above = (mx.nd.contrib.quadratic(csr, a=2, b=1, c=c) for c in (0, 1))
    assert (through.stype, above.stype) == ("csr", "default")
    assert (through.asnumpy() == 2 * X**2 + X).all() and (above.asnumpy() == 2 * X**2 + X + 1).all()


@pytest.mark.parametrize("request_, first, second", [("write", 1, 1), ("add", 11, 1)])
def test_a_bound_program_fills_sparse_gradients_of_the_users(request_, first, second):
    net = mx.sym.take(mx.sym.Variable("w"), mx.sym.Variable("i"))
    grad = mx.nd.array(np.full((4, 2), [[10], [0], [0], [0]])).tostype("row_sparse")
    args = {"w": mx.nd.ones((4, 2)), "i": mx.nd.array([0, 2])}
    exe = net.bind(mx.cpu(), args, args_grad={"w": grad}, grad_req={"w": request_})
    assert exe.grad_dict["w"] is grad
    exe.forward(is_train=True)
    exe.backward(mx.nd.ones((2, 2)))
    assert grad.indices.asnumpy().tolist() == [0, 2]
    assert grad.data.asnumpy().tolist() == [[first] * 2, [1] * 2]
    grad[:] = 0
    exe.forward_backward(mx.nd.ones((2, 2)), i=mx.nd.array([3, 3]))
    assert grad.indices.asnumpy().tolist() == [3] and grad.data.asnumpy().tolist() == [[2 * second] * 2]
    assert exe.measured_bytes == exe.memory_plan.peak_bytes


def test_retain_is_an_operator_of_symbols_too(rows):
    net = mx.sym.sparse.retain(mx.sym.Variable("data", stype="row_sparse"), mx.sym.Variable("i"))
    kept = mx.nd.array([3, 0])
    exe = net.bind(mx.cpu(), {"data": rows, "i": kept})
    assert (exe.forward()[0].asnumpy() == mx.nd.sparse.retain(rows, kept).asnumpy()).all()
    exe.arg_dict["i"][:] = 5
    with pytest.raises(IndexError, match="indices must be in"):
        exe.forward()[0].asnumpy()
    mx.nd.waitall()


@pytest.mark.parametrize("make", [mx.nd.sparse.csr_matrix, mx.nd.sparse.row_sparse_array])
def test_a_sparse_array_of_a_sparse_one_is_on_the_device_that_is_asked_for(make):
    of = make(np.eye(3, dtype="float32"))
    assert make(of, ctx=mx.cpu(1), dtype="float64").context == make(of, ctx=mx.cpu(1)).context == mx.cpu(1)


def test_retain_says_what_it_lacks_or_does_not_take():
    rows = mx.nd.ones((2, 2)).tostype("row_sparse")
    with pytest.raises(mx.MXNetError, match="takes no 'index'"):
        mx.nd.sparse.retain(rows, index=mx.nd.array([0]))
    with pytest.raises(mx.MXNetError, match="needs indices"):
        mx.nd.sparse.retain(rows)


def test_zeros_of_an_unknown_storage_type_are_an_error_of_value():
    with pytest.raises(ValueError, match="stype must be one of"):
        mx.nd.sparse.zeros("rows", (2, 2))
