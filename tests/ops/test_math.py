"""Single facts about elementwise mathematics, reductions and linear algebra.

The facts were read off MXNet 1.9.1 where it has the operator, else off numpy.
"""

import math

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.core.errors import DerivativeError, DTypeError, OpAttributeError, OperatorError, ShapeError
from mxlite.graph.derivative import Writer
from mxlite.ops.elementwise.gamma_function import (
    digamma_values,
    gamma_values,
    gammaln_values,
    polygamma_values,
)
from mxlite.te.error_function import erf_values, erfc_values, erfinv_values, normal_values
from tests.cases.linalg import definite, regular
from tests.conformance.case import Case
from tests.conformance.conformance import Call, stages
from tests.conformance.second_order import check_derivative

FILES = """unary roots trigonometric error_function gamma_function elemwise scalar logical broadcast
    remainder""".split()
MINE = [op for op in ops.ALL if op.__module__.rpartition(".")[2] in FILES]
ELEMENTWISE = [op for op in MINE if op.same_shape]
SPREADING = [op for op in MINE if op.inputs == ("lhs", "rhs") and not op.same_shape]
SMALL_NUMBERS = {"Cast": {"dtype": "float32"}, "clip": {"a_min": 0, "a_max": 1}, "polygamma": {"n": 1}}


@pytest.fixture(autouse=True)
def no_warnings_at_poles():
    """As a program runs its kernels."""
    with np.errstate(all="ignore"):
        yield


def run(op, *inputs, **attrs):
    """All outputs of a call on these arrays, by name, and the call."""
    arrays = [np.asarray(x, None if isinstance(x, np.ndarray) else "float64") for x in inputs]
    names = op.input_names(Case(op, attrs).parsed)
    kinds = {n: str(x.dtype) for n, x in zip(names, arrays)}
    case = Case(op, attrs, [x.shape for x in arrays], dtypes=kinds)
    call = Call.of(case)
    outs, _ = call.execute(op, dict(zip(names, arrays)))
    return list(outs.values())


def relative(got, want):
    """The largest relative difference, and where."""
    got, want = np.asarray(got), np.asarray(want)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    return float(np.max(np.abs(got - want)[finite] / np.maximum(np.abs(want[finite]), 1e-300)))


# -- special functions ---------------------------------------------------------------------------

LINE = np.concatenate([np.linspace(-6, 6, 4001), 10.0 ** np.linspace(-300, 0, 301)])


def test_error_functions_are_right_to_a_few_digits_of_float64():
    erfs = [math.erf(x) for x in LINE]
    assert relative(erf_values(np, LINE), erfs) < 1e-15
    far = np.linspace(0, 26, 4001)
    assert relative(erfc_values(np, far), [math.erfc(x) for x in far]) < 1e-13
    normal = np.linspace(-36, 8, 4001)
    want = [0.5 * math.erfc(-x / math.sqrt(2)) for x in normal]
    assert relative(normal_values(np, normal), want) < 1e-12
    back = erfinv_values(np, np.array([math.erf(x) for x in np.linspace(-2.5, 2.5, 501)]))
    np.testing.assert_allclose(back, np.linspace(-2.5, 2.5, 501), rtol=1e-12, atol=1e-16)
    np.testing.assert_array_equal(erfinv_values(np, np.array([1, -1, 0, 2])), [np.inf, -np.inf, 0, np.nan])
    np.testing.assert_array_equal(erf_values(np, np.array([np.inf, -np.inf, np.nan])), [1, -1, np.nan])


@pytest.mark.parametrize("itemsize, bound", [(8, 1e-15), (4, 3e-8), (2, 1e-4)])
def test_erf_of_a_narrow_type_is_as_right_as_the_type_can_show(itemsize, bound):
    assert relative(erf_values(np, LINE, itemsize), [math.erf(x) for x in LINE]) < bound


def test_gamma_functions_agree_with_c():
    x = np.concatenate(
        [
            np.linspace(-20.013, 25, 3001),
            np.linspace(0.01, 3, 1001),
            10.0 ** np.linspace(-300, 2.2, 101),
            -(10.0 ** np.linspace(-300, -1, 101)),
            np.linspace(1 - 1e-6, 1 + 1e-6, 51),
            np.linspace(2 - 1e-6, 2 + 1e-6, 51),
            [170.5, 171.6, -100.3, -169.7],
        ]
    )
    with np.errstate(all="ignore"):
        assert relative(gamma_values(np, x), [math.gamma(v) for v in x]) < 2e-13
        got = gammaln_values(np, x)
    want = np.array([math.lgamma(v) for v in x])
    # Below 0, zeros lie between the poles: there the bound is absolute. So is C's own error near 1 and 2.
    np.testing.assert_allclose(got[x > 0], want[x > 0], rtol=1e-12, atol=2e-15)
    np.testing.assert_allclose(got[x < 0], want[x < 0], rtol=1e-12, atol=1e-14)
    with np.errstate(all="ignore"):
        edges = np.array([0.0, -1, np.inf, -np.inf, np.nan, 172, 1e304, -0.0])
        np.testing.assert_array_equal(
            gamma_values(np, edges), [np.inf, np.nan, np.inf, np.nan, np.nan, np.inf, np.inf, -np.inf]
        )
        np.testing.assert_array_equal(gammaln_values(np, edges)[:5], [np.inf] * 4 + [np.nan])
        np.testing.assert_array_equal(
            digamma_values(np, edges)[:5], [-np.inf, np.nan, np.inf, np.nan, np.nan]
        )


def test_the_logarithm_of_gamma_is_right_near_its_zeros():
    assert gammaln_values(np, np.array([1.0, 2.0])).tolist() == [0, 0]
    z = np.array([-1e-6, -1e-9, 1e-9, 1e-6])
    exact, at_two = (1 + z) - 1, (2 + z) - 2  # what is left of z
    euler, second, third = 0.5772156649015329, math.pi**2 / 12, 1.2020569031595942 / 3
    near_one = exact * (-euler + exact * (second - exact * third))
    near_two = at_two * (1 - euler + at_two * (second - 0.5))
    assert relative(gammaln_values(np, 1 + z), near_one) < 1e-15
    assert relative(gammaln_values(np, 2 + z), near_two) < 1e-12
    got = [polygamma_values(np, n, np.array([x]))[0] for n, x in ((1, 1.0), (1, 0.5), (2, 1.0), (1, -0.5))]
    want = [math.pi**2 / 6, math.pi**2 / 2, -2 * 1.2020569031595942, math.pi**2 / 2 + 4]
    assert relative(got, want) < 1e-15


@pytest.mark.torch
def test_special_functions_agree_with_torch():
    torch = pytest.importorskip("torch")
    x = np.concatenate([np.linspace(-30.0137, 60, 5001), 10.0 ** np.linspace(-10, 10, 201)])
    t = torch.tensor(x)
    assert relative(erf_values(np, x), torch.special.erf(t)) < 1e-12
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(gammaln_values(np, x), torch.special.gammaln(t), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(digamma_values(np, x), torch.special.digamma(t), rtol=1e-12, atol=1e-12)
    y = np.concatenate([np.linspace(-1, 1, 4001)[1:-1], 1 - 10.0 ** np.linspace(-15, -1, 101)])
    assert relative(erfinv_values(np, y), torch.special.erfinv(torch.tensor(y))) < 1e-12
    up = np.linspace(0.05, 40, 1001)
    for n in (1, 2, 5):
        want = torch.special.polygamma(n, torch.tensor(up))
        rtol = 1e-9 if n == 1 else 1e-12  # PyTorch's trigamma is not better
        np.testing.assert_allclose(polygamma_values(np, n, up), want, rtol=rtol)


def test_polygamma_is_the_derivative_of_the_one_before():
    x = np.linspace(-5.3, 6, 37)
    x = x[np.abs(x - np.rint(x)) > 0.1]
    for n in range(4):
        step = 1e-5
        numeric = (polygamma_values(np, n, x + step) - polygamma_values(np, n, x - step)) / (2 * step)
        np.testing.assert_allclose(polygamma_values(np, n + 1, x), numeric, rtol=1e-4)


# -- arrays without elements or axes -------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
@pytest.mark.parametrize("op", [*ELEMENTWISE, *SPREADING])
def test_elementwise_operators_take_any_shape(op, shape):
    attrs = dict(SMALL_NUMBERS.get(op.op_name, {}))
    if op.variadic:
        attrs["num_args"] = 2
    case = Case(op, attrs)
    names = op.input_names(case.parsed)
    for kind in ("float32", "int32", "bool"):
        try:
            call = Call.of(Case(op, attrs, [shape] * len(names), dtype=kind))
        except DTypeError:
            continue
        for stage, inputs in stages(call, [np.ones(shape, kind)] * len(names)):
            results, _ = call.execute(stage, inputs)
            assert all(y.shape == shape for y in results.values())
        return
    raise AssertionError(f"{op.op_name} takes none of the types")


@pytest.mark.parametrize("op", [ops.max, ops.min, ops.argmax, ops.argmin, ops.logsumexp])
def test_of_no_element_there_is_no_extreme(op):
    with pytest.raises(ShapeError, match=f"no element along axis 1 to take the {op.op_name} of"):
        run(op, np.zeros((2, 0)), axis=1)
    assert run(op, np.zeros((2, 0, 3)), axis=0 if op.Attrs.__name__ == "ArgAttrs" else (0,))[0].shape == (
        0,
        3,
    )


def test_sums_of_nothing():
    empty = np.zeros((2, 0))
    assert run(ops.sum, empty, axis=1)[0].tolist() == [0, 0]
    assert run(ops.prod, empty)[0].tolist() == [1]
    assert run(ops.nansum, empty)[0].tolist() == [0]
    assert run(ops.nanprod, empty, axis=1)[0].tolist() == [1, 1]
    assert run(ops.any, empty)[0].tolist() == [0]
    assert run(ops.all, empty)[0].tolist() == [1]
    assert np.isnan(run(ops.mean, empty, axis=1)[0]).all()
    assert run(ops.cumsum, empty, axis=1)[0].shape == (2, 0)
    assert run(ops.dot, np.zeros((2, 0)), np.zeros((0, 3)))[0].tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("op", [ops.sum, ops.mean, ops.prod, ops.max, ops.norm, ops.any, ops.logsumexp])
def test_reductions_of_an_array_without_axes(op):
    got = run(op, np.array(1.5))[0]
    assert got.shape == (1,)
    assert got[0] == pytest.approx(1.0 if op is ops.any else 1.5)


# -- element types -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_long_sums_of_two_byte_floats_are_right(kind):
    dtype = mx.core.dtype.as_dtype(kind)
    ones = np.ones((6000, 3), dtype)
    assert run(ops.sum, ones, axis=0)[0].astype(float).tolist() == pytest.approx([6000] * 3, rel=4e-3)
    assert run(ops.mean, np.full((9000, 2), 8, dtype), axis=0)[0].astype(float).tolist() == [8, 8]
    assert run(ops.norm, ones, axis=0)[0].astype(float) == pytest.approx(math.sqrt(6000), rel=4e-3)
    assert run(ops._sum_like, ones, ones[:1])[0].astype(float).tolist() == [
        pytest.approx([6000] * 3, rel=4e-3)
    ]
    assert run(ops.cumsum, ones, axis=0)[0].astype(float)[-1].tolist() == pytest.approx([6000] * 3, rel=4e-3)
    got = run(ops.einsum, ones, ones, subscripts="ij,ij->j", num_args=2)[0]
    assert got.astype(float).tolist() == pytest.approx([6000] * 3, rel=4e-3)


def test_gradients_of_broadcasting_two_byte_floats_are_right():
    case = Case(ops.broadcast_mul, {}, [(6000, 3), (1, 3)], dtype="float16")
    call = Call.of(case)
    ones = {"lhs": np.ones((6000, 3), "float16"), "rhs": np.ones((1, 3), "float16")}
    got, _ = call.execute(ops.broadcast_mul.grad_op, {"d_out": np.ones((6000, 3), "float16"), **ones})
    assert got["d_rhs"].tolist() == [[6000] * 3]


def test_bool_is_for_logic():
    yes = np.array([True, False])
    assert run(ops.broadcast_logical_xor, yes, ~yes)[0].dtype == bool
    assert run(ops.logical_not, yes)[0].tolist() == [False, True]
    with pytest.raises(DTypeError, match="numbers, not bool"):
        run(ops.broadcast_add, yes, yes)
    with pytest.raises(DTypeError, match="needs whole numbers, got bool"):
        run(ops.left_shift, yes, yes)
    with pytest.raises(DTypeError, match="bool or whole numbers, got float64"):
        run(ops.bitwise_and, [1.0], [1.0])


WHOLE = {
    "a negative exponent": (ops.broadcast_power, [[2, 1, -1], [-1, -2, -3]], {}, [0, 1, -1]),
    "bits": (ops.bitwise_xor, [[5, -1], [3, 1]], {}, [6, -2]),
    "shifts keep the sign": (ops.right_shift, [[-8, 9], [1, 2]], {}, [-4, 2]),
    "a number wraps round": (ops._plus_scalar, [np.array([1], "uint8")], {"scalar": -2}, [255]),
    "remainder with the sign of the dividend": (ops.fmod, [[-7, 7], [3, -3]], {}, [-1, 1]),
    "fix goes towards 0": (ops.fix, [np.array([-1.7, 1.7])], {}, [-1, 1]),
    "running sums": (ops.cumsum, [[[1, 2], [3, 4]]], {}, [1, 3, 6, 10]),
    "running sums from the end, without oneself": (
        ops.cumsum,
        [[1, 2, 3]],
        {"axis": 0, "reverse": True, "exclusive": True},
        [5, 3, 0],
    ),
    "argmax over channels": (ops.argmax_channel, [[[1, 3, 2], [9, 1, 1]]], {}, [1, 0]),
    "Kronecker products of columns": (
        ops.khatri_rao,
        [[[1, -1], [2, -3]], [[1, 4], [2, 5], [3, 6]]],
        {"num_args": 2},
        [[1, -4], [2, -5], [3, -6], [2, -12], [4, -15], [6, -18]],
    ),
    "smooth_l1 of scalar 0": (ops.smooth_l1, [np.array([1.0, 0.1])], {"scalar": 0}, [0, 0]),
    "nan is left out": (ops.nansum, [np.array([1, np.nan, 3])], {}, [4]),
    "and out of products": (ops.nanprod, [np.array([2, np.nan, 3])], {}, [6]),
    "an upper triangle goes column by column": (
        ops._linalg_extracttrian,
        [np.arange(9.0).reshape(3, 3)],
        {"lower": False},
        [0, 1, 4, 2, 5, 8],
    ),
    "a diagonal above": (ops._linalg_makediag, [np.array([1.5])], {"offset": 1}, [[0, 1.5], [0, 0]]),
    "einsum without an arrow": (
        ops.einsum,
        [[[1, 2], [3, 4]], [[1, 0], [0, 2]]],
        {"num_args": 2, "subscripts": "ba,ac"},
        [[1, 4], [3, 8]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_fact(name):
    op, inputs, attrs, want = WHOLE[name]
    inputs = [x if isinstance(x, np.ndarray) else np.array(x, "int32") for x in inputs]
    assert run(op, *inputs, **attrs)[0].tolist() == want


def test_a_running_sum_over_many_blocks():
    x = np.random.default_rng(0).integers(-4, 5, (3, 10_001, 2)).astype(float)
    for axis in range(3):
        np.testing.assert_array_equal(run(ops.cumsum, x, axis=axis)[0], x.cumsum(axis))
    back = run(ops.cumsum, x, axis=1, reverse=True)[0]
    np.testing.assert_array_equal(back, x[:, ::-1].cumsum(1)[:, ::-1])


def test_logsumexp_of_infinities():
    x = np.array([[np.inf, 1.0], [-np.inf, -np.inf], [1000.0, 1000.0]])
    got = run(ops.logsumexp, x, axis=1)[0]
    np.testing.assert_allclose(got, [np.inf, -np.inf, 1000 + math.log(2)])


# -- linear algebra ------------------------------------------------------------------------------


def test_linalg_namespaces_have_every_operator():
    names = {n.removeprefix("_linalg_") for n in ops.TABLE if n.startswith("_linalg_")}
    for space in (mx.nd.linalg, mx.sym.linalg):
        assert {n for n in dir(space) if not n.startswith("_")} >= names
    a = mx.nd.array([[4, 1], [1, 4.25]])
    assert mx.nd.linalg.potrf(a).asnumpy().tolist() == [[2, 0], [0.5, 2]]
    net = mx.sym.linalg.gemm2(mx.sym.Variable("a"), mx.sym.Variable("b"), transpose_b=True)
    assert net.infer_shape(a=(2, 3, 4), b=(2, 5, 4))[1] == [(2, 3, 5)]
    with pytest.raises(AttributeError, match=r"mx\.nd\.linalg has no 'potrv'\. Did you mean"):
        mx.nd.linalg.potrv  # noqa: B018


@pytest.mark.parametrize(
    "name, matrix, text",
    [
        ("potrf", [[1, 2], [2, 1]], "not positive definite"),
        ("inverse", [[1, 2], [2, 4]], "singular"),
        ("potri", [[1, 0], [2, 0]], "0 on its diagonal"),
    ],
)
def test_a_matrix_that_cannot_be_is_an_error_that_names_the_node(name, matrix, text):
    net = getattr(mx.sym.linalg, name)(mx.sym.Variable("a"), name="factor")
    exe = net.bind(mx.cpu(), {"a": mx.nd.array(matrix)})
    with pytest.raises(OperatorError, match=rf"(?s)factor.*{text}|{text}.*factor"):
        exe.forward()[0].asnumpy()


def test_determinants_of_singular_matrices():
    matrices = np.array([[[2.0, 3], [1, 4]], [[1, 2], [2, 4]], [[1, 2], [4, 3]]])
    sign, size = run(ops._linalg_slogdet, matrices)
    assert sign.tolist() == [1, 0, -1]
    np.testing.assert_allclose(size, [math.log(5), -np.inf, math.log(5)])
    call = Call.of(Case(ops._linalg_det, {}, [(3, 2, 2)]))
    det = run(ops._linalg_det, matrices)[0]
    got, _ = call.execute(ops._linalg_det.grad_op, {"d_out": np.ones(3), "A": matrices, "out": det})
    np.testing.assert_allclose(got["d_A"][0], [[4, -1], [-3, 2]])
    assert not got["d_A"][1].any()


@pytest.mark.parametrize("n", [1, 5, 70])
def test_factorizations_of_larger_matrices(n):
    rng = np.random.default_rng(n)
    a = definite(rng, (2, n, n))
    (low,) = run(ops._linalg_potrf, a)
    np.testing.assert_allclose(low @ low.swapaxes(1, 2), a, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        run(ops._linalg_potri, low)[0] @ a, np.broadcast_to(np.eye(n), a.shape), atol=1e-9
    )
    u, values = run(ops._linalg_syevd, a)
    np.testing.assert_allclose(u @ a, values[..., None] * u, rtol=1e-9, atol=1e-9 * n)
    b = rng.standard_normal((2, n, 3))
    t = regular(rng, (2, n, n)) / n + 2 * np.eye(n)
    np.testing.assert_allclose(np.tril(t) @ run(ops._linalg_trsm, t, b)[0], b, atol=1e-9)
    q, low = run(ops._linalg_gelqf, rng.standard_normal((2, n, n + 2)))
    np.testing.assert_allclose(q @ q.swapaxes(1, 2), np.broadcast_to(np.eye(n), (2, n, n)), atol=1e-10)
    assert not np.triu(low, 1).any()


@pytest.mark.parametrize(
    "op, shapes, attrs, text",
    [
        (ops._linalg_potrf, [(2, 3)], {}, r"A must be \(\.\.\., N, N\)"),
        (ops._linalg_trsm, [(2, 2), (3, 2)], {}, "B must have 2 rows"),
        (ops.LinalgGemm2, [(2, 3), (2, 3)], {}, "do not multiply"),
        (ops._linalg_gelqf, [(3, 2)], {}, "M <= N"),
        (ops._linalg_maketrian, [(4,)], {}, "whole K"),
        (ops._linalg_extractdiag, [(2, 2)], {"offset": 2}, "offset 2 is outside"),
        (ops.khatri_rao, [(2, 3), (2, 2)], {"num_args": 2}, "equally many columns"),
        (ops.einsum, [(2, 3), (2, 3)], {"num_args": 2, "subscripts": "ij,jk->ik"}, "axis 'j' must be 3 long"),
        (ops.einsum, [(2, 3)], {"num_args": 1, "subscripts": "i->i"}, "must have 1 axes"),
        (ops.broadcast_like, [(2, 3), (2, 4)], {}, "only axes of length 1"),
        (ops.cumsum, [(2, 3)], {"axis": 2}, "axis 2 is not one"),
        (ops.SpreadLike, [(2,), (2, 3)], {"axis": (0,)}, r"data must be \(3,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(op, shapes, attrs, text):
    with pytest.raises(ShapeError, match=text):
        op.infer_shape(Case(op, attrs).parsed, *shapes)


@pytest.mark.parametrize(
    "subscripts, text",
    [
        ("...i->i", "ellipsis is not supported"),
        ("ij,jk->ik", "has 2 operands, not 1"),
        ("i->j", "no operand has 'j'"),
        ("i1->i", "must be letters"),
    ],
)
def test_subscripts_that_say_nothing_are_refused(subscripts, text):
    with pytest.raises(OpAttributeError, match=text):
        run(ops.einsum, [1.0], subscripts=subscripts, num_args=1)


def test_einsum_uses_no_scratch_where_the_order_fits():
    for subscripts, shapes in (
        ("ik,kj->ij", [(3, 4), (4, 5)]),
        ("ik,jk->ij", [(3, 4), (5, 4)]),
        ("ki,kj->ji", [(4, 3), (4, 5)]),
        ("bqhd,bkhd->bhqk", None),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ):
        if shapes is not None:
            a = ops.einsum.Attrs(2, subscripts)
            assert ops.einsum.workspace(a, shapes, (), np.dtype("float32")) == 0
            assert ops.einsum.flops(a, shapes, ()) == 2 * math.prod(
                dict(zip("".join(subscripts.split("->")[0].split(",")), sum(shapes, ()))).values()
            )


# -- gradients of gradients ----------------------------------------------------------------------


def test_the_rule_sees_a_wrong_derivative_and_one_that_stops():
    class wrong(ops.square):
        @staticmethod
        def derivative(w, a, ins, outs, heads):
            return {"data": w.elemwise_mul(heads["out"], ins["data"])}

    class stops(ops.square):
        @staticmethod
        def derivative(w, a, ins, outs, heads):
            return {"data": w._mul_scalar(w.elemwise_mul(heads["out"], w.BlockGrad(ins["data"])), scalar=2)}

    class silent(ops.square):
        @staticmethod
        def derivative(w, a, ins, outs, heads):
            return {}

    check_derivative(Case(ops.square))
    with pytest.raises(AssertionError, match="gradient of data"):
        check_derivative(Case(wrong))
    with pytest.raises(AssertionError, match="its gradient in data is"):
        check_derivative(Case(stops))
    with pytest.raises(AssertionError, match="gives no gradient of data"):
        check_derivative(Case(silent))


def test_elementwise_and_reducing_operators_say_how_they_are_differentiated():
    """Every one that has a kernel for its gradient has it written with operators too."""
    files = [*FILES, *"stretch reduce measures cumulative linalg einsum matrices".split()]
    without = {
        op.op_name
        for op in ops.ALL
        if op.__module__.rpartition(".")[2] in files and op.backward is not None and op.derivative is None
    }
    assert without == {"khatri_rao"}


def test_a_total_of_another_type_says_that_it_stops_there():
    writer = Writer(ops.find_op, "node")
    for op in (ops.cumsum, ops.cumprod):
        with pytest.raises(DerivativeError, match="Cast the result instead"):
            op.derivative(writer, op.Attrs(dtype="float64"), {}, {}, {"out": None})


@pytest.mark.parametrize(
    "name, attrs, factor",
    [
        ("round_ste", {}, 1),
        ("sign_ste", {}, 1),
        ("gradientmultiplier", {"scalar": -0.5}, -0.5),
        ("gradientmultiplier", {}, 1),
    ],
)
def test_a_gradient_is_what_it_is_said_to_be(name, attrs, factor):
    data, head = np.array([-1.5, -0.2, 0, 1.5, 2.7], "float32"), np.array([1, 2, 3, 4, 5], "float32")
    x = mx.nd.array(data)
    x.attach_grad()
    with mx.autograd.record():
        out = getattr(mx.nd.contrib, name)(x, **attrs)
    out.backward(mx.nd.array(head))
    plain = {"round_ste": mx.nd.round, "sign_ste": mx.nd.sign}.get(name, lambda a: a)
    np.testing.assert_array_equal(out.asnumpy(), plain(x).asnumpy())
    np.testing.assert_array_equal(x.grad.asnumpy(), factor * head)


def test_frequent_classes_are_drawn_more_often():
    mx.random.seed(4)
    samples, true, sampled = mx.nd.contrib.rand_zipfian(mx.nd.array([0, 3]), 20_000, 5)
    share = np.log(np.arange(2, 7) / np.arange(1, 6)) / np.log(6)
    found = samples.asnumpy()
    assert found.dtype == "int64" and true.dtype == sampled.dtype == np.float64
    np.testing.assert_allclose(np.bincount(found) / 20_000, share, atol=0.015)
    np.testing.assert_allclose(true.asnumpy(), 20_000 * share[[0, 3]])
    np.testing.assert_allclose(sampled.asnumpy(), 20_000 * share[found])
    with pytest.raises(mx.OpAttributeError, match="at least 1, got 3 and 0"):
        mx.nd.contrib.rand_zipfian(mx.nd.array([0]), 3, 0)
    net = mx.sym.Group(mx.sym.contrib.rand_zipfian(mx.sym.Variable("true"), 6, 4))
    exe = net.simple_bind(mx.cpu(), grad_req="null", true=(2,))
    first, again = exe.forward(true=mx.nd.array([1, 2]))[0].asnumpy(), exe.forward()[0].asnumpy()
    assert first.shape == (6,) and ((first >= 0) & (first < 4)).all() and (first != again).any()


def test_classes_without_repetition_are_drawn_until_there_are_enough():
    mx.random.seed(4)
    samples, tries = mx.nd._internal._sample_unique_zipfian(200, shape=(3, 20))
    assert samples.dtype == tries.dtype == np.int64 and samples.shape == (3, 20) and tries.shape == (3,)
    rows = samples.asnumpy()
    assert all(len(set(r)) == 20 for r in rows) and rows.min() >= 0 and rows.max() < 200
    assert (tries.asnumpy() >= 20).all() and rows.mean() < 80  # 99.5 if all were as frequent
    mx.random.seed(4)
    again, _ = mx.nd._internal._sample_unique_zipfian(200, shape=(3, 20))
    assert (again.asnumpy() == rows).all()
    every, tries = mx.nd._internal._sample_unique_zipfian(5, shape=(1, 5))
    assert sorted(every.asnumpy()[0]) == [0, 1, 2, 3, 4] and tries.asscalar() >= 5
    assert mx.nd._internal._sample_unique_zipfian(5, shape=(4, 1))[1].asnumpy().tolist() == [1] * 4
    with pytest.raises(mx.ShapeError, match="at most 5 different"):
        mx.nd._internal._sample_unique_zipfian(5, shape=(1, 6))


@pytest.mark.parametrize(
    "b, equal_nan, close",
    [
        ([np.nan, np.inf, 1], True, 1),
        ([np.nan, np.inf, 1], False, 0),
        ([np.nan, -np.inf, 1], True, 0),
        ([np.nan, 1, 1], True, 0),
        ([1, np.inf, 1], True, 0),
    ],
)
def test_nan_and_infinities_are_close_to_themselves(b, equal_nan, close):
    a = mx.nd.array([np.nan, np.inf, 1])
    made = mx.nd.contrib.allclose(a, mx.nd.array(b), equal_nan=equal_nan)
    assert made.shape == ()
    assert made.asnumpy() == close


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_shorter_series_of_narrow_types_are_right_beyond_what_they_show():
    x = np.concatenate([np.linspace(-7.9, 30, 4001), 1 + np.linspace(-1e-3, 1e-3, 101), [1e-20, 1e5]])
    for f in (gamma_values, gammaln_values, digamma_values):
        want = f(np, x)
        error = np.abs(f(np, x, itemsize=4) - want) / np.maximum(1, np.abs(want))
        assert np.nanmax(error) < 1e-10
    y = np.concatenate([np.linspace(-0.999, 0.999, 2001), 1 - 2.0 ** -np.arange(1, 25), [1e-20]])
    want = erfinv_values(np, y)
    with np.errstate(all="ignore"):
        assert np.nanmax(np.abs(erfinv_values(np, y, 4) / want - 1)) < 1e-9
        assert np.nanmax(np.abs(erfinv_values(np, y, 2) / want - 1)) < 1e-5
