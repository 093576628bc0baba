"""The ONNX standard's own tests, run on mxlite. The counts are printed at the end of the test run."""

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import helper, TensorProto

from mxlite.core import FormatError
from mxlite.formats.onnx import backend, NotSupportedError
from tests.oracles.onnx import onnx_cases
from tests.oracles.onnx.onnx_cases import Case, count, Outcome, run_case


# One test for all, as making the cases takes as long as running half of them.
def test_node_cases_of_the_standard_pass_or_say_what_is_not_supported(record_property):
    outcomes = [run_case(case) for case in onnx_cases.node_cases()]
    record_property("count: ONNX node tests", count(outcomes))
    failed = [f"{o.name}: {o.why}" for o in outcomes if o.kind == "failed"]
    assert not failed, "\n\n".join(failed)
    assert count(outcomes)["passed"] >= max(1600, 0.85 * len(outcomes))


def test_model_cases_of_the_standard_pass_or_say_what_is_not_supported(record_property):
    outcomes = [run_case(case) for case in onnx_cases.model_cases()]
    record_property("count: ONNX model tests", count(outcomes))
    failed = [f"{o.name}: {o.why}" for o in outcomes if o.kind == "failed"]
    assert not failed, "\n\n".join(failed)
    assert count(outcomes)["passed"] >= 110


def test_what_is_not_supported_names_node_operator_opset_and_reason():
    x = np.ones((2, 3), np.float32)
    for node, inputs, why in (
        (helper.make_node("NonZero", ["x"], ["y"], name="n1"), [x], "NonZero 'n1' .opset 13.: .*numbers"),
        (helper.make_node("Unique", ["x"], ["y"]), [x], "Unique 'y' .opset 13.: .*numbers in its input"),
        (
            helper.make_node("StringNormalizer", ["x"], ["y"]),
            [x],
            "StringNormalizer 'y' .opset 13.: .*no such",
        ),
        (helper.make_node("Cast", ["x"], ["y"], to=TensorProto.UINT16), [x], "Cast 'y' .opset 13.: .*uint16"),
        (
            helper.make_node("Neg", ["x"], ["y"]),
            [x.astype(ml_dtypes.float8_e5m2)],
            "'x' has elements of type float8_e5m2",
        ),
        (
            helper.make_node("Identity", ["x"], ["y"], domain="other"),
            [x],
            "other.Identity 'y'.*no such operator",
        ),
    ):
        with pytest.raises(NotSupportedError, match=why):
            backend.run_node(node, inputs, opset_version=13)


def _relu(wanted):
    node = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    return Case("relu", helper.make_model(helper.make_graph([node], "relu", [x], [y])), wanted, 1e-3, 1e-7)


def test_a_wrong_output_is_a_failure():
    x = np.array([-1, 2], np.float32)
    assert run_case(_relu((([x], [np.array([0, 2], np.float32)]),))) == Outcome("relu", "passed")
    assert run_case(_relu((([x], [np.array([0, 2.01], np.float32)]),))).kind == "failed"
    assert run_case(_relu((([x], [np.array([0, 2], np.float64)]),))).kind == "failed"  # another type
    assert run_case(_relu((([x], [np.array([[0, 2]], np.float32)]),))).kind == "failed"  # another shape
    assert run_case(_relu((([x], []),))).kind == "failed"
    assert run_case(_relu(())).kind == "failed"


def test_backend_runs_models_and_nodes():
    x = np.array([[-1, 2]], np.float32)
    case = _relu(())
    prepared = backend.prepare(case.model)
    np.testing.assert_array_equal(prepared.run([x[0]])[0], [0, 2])
    np.testing.assert_array_equal(prepared.run({"x": x[0]})[0], [0, 2])
    np.testing.assert_array_equal(backend.run_model(case.model, [x[0]])[0], [0, 2])
    (y,) = backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [x])
    np.testing.assert_array_equal(y, -x)
    squeeze = helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    (y,) = backend.run_node(squeeze, [x], opset_version=11)
    assert y.shape == (2,)
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")
    with pytest.raises(FormatError, match="CUDA"):
        backend.prepare(case.model, "CUDA")


def test_backend_fits_the_standards_own_runner():
    """The runner of the onnx package finds our backend whole; its cases are those above."""
    from onnx.backend.test.runner import Runner

    assert issubclass(backend.MXLiteBackend, onnx.backend.base.Backend)
    for name in ("is_compatible", "prepare", "run_model", "run_node", "supports_device"):
        assert callable(getattr(backend, name))
    assert Runner.assert_similar_outputs
