"""The ONNX standard's own tests, out of the `onnx` wheel, and what became of each of them here.

Node tests are one operator each, or the operators that the standard defines it by ("expanded"); models lie in
the wheel as files, made by older versions of the standard and by PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KINDS = ("passed", "not supported", "failed")


@dataclass(frozen=True)
class Case:
    """A model, its (inputs, outputs) pairs, and how near outputs must be."""

    name: str
    model: object
    data: tuple
    rtol: float
    atol: float


@dataclass(frozen=True)
class Outcome:
    """What became of a case: one of KINDS; `why` is the importer's reason or the error."""

    name: str
    kind: str
    why: str = ""


@functools.cache
def node_cases() -> list[Case]:
    """The node tests in a fixed order: 1,884 with onnx 1.23. Making them takes 6 s, once a process."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    cases = [Case(c.name, c.model, tuple(c.data_sets), c.rtol, c.atol) for c in found]
    return sorted(cases, key=lambda c: c.name)


@functools.cache
def model_cases() -> list[Case]:
    """The models in the wheel that bring their data along: 140 with onnx 1.23."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    cases = []
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for found in load_model_tests(kind=kind):
            folder = Path(found.model_dir)
            model = onnx.load(folder / "model.onnx")
            data = tuple(
                (_protos(part, "input", model.graph.input), _protos(part, "output", model.graph.output))
                for part in sorted(folder.glob("test_data_set*"))
            )
            cases.append(Case(f"{kind}/{found.name}", model, data, found.rtol, found.atol))
    return sorted(cases, key=lambda c: c.name)


def _protos(folder: Path, what: str, infos) -> list:
    """Arrays of the files input_0.pb, ...; None for what is no tensor, such as a sequence."""
    import onnx

    arrays = []
    for i, info in zip(range(len(list(folder.glob(f"{what}_*.pb")))), infos):
        if not info.type.HasField("tensor_type"):
            arrays.append(None)
            continue
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{what}_{i}.pb").read_bytes())
        arrays.append(onnx.numpy_helper.to_array(tensor))
    return arrays


def run_case(case: Case) -> Outcome:
    """Import, run, compare. Only the importer's own NotSupportedError makes a case not supported."""
    from onnx import numpy_helper, TensorProto
    from onnx.backend.test.runner import Runner

    from mxlite.formats.onnx import NotSupportedError
    from mxlite.formats.onnx.backend import MXLiteBackend

    def array(value):
        return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value

    compared = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = MXLiteBackend.prepare(case.model)
            for inputs, wanted in case.data:
                outputs = prepared.run([array(x) for x in inputs])
                theirs = [array(x) for x in wanted]
                assert [_length(x) for x in outputs] == [_length(x) for x in theirs]
                if _draws(case.model):  # other truth values, of the same shapes and types
                    assert all(np.isin(x, (0, 1)).all() for x in outputs)
                    outputs, theirs = ([np.zeros_like(x) for x in xs] for xs in (outputs, theirs))
                Runner.assert_similar_outputs(_flat(theirs), _flat(outputs), case.rtol, case.atol)
                compared += len(outputs)
    except NotSupportedError as error:
        return Outcome(case.name, "not supported", str(error))
    except Exception as error:
        return Outcome(case.name, "failed", f"{type(error).__name__}: {error}")
    if not compared:
        return Outcome(case.name, "failed", "there was nothing to compare")
    return Outcome(case.name, "passed")


def _draws(model) -> bool:
    """True if the results are drawn: of all the standard's cases those of Bernoulli."""
    return any(n.op_type == "Bernoulli" or n.op_type.startswith("Random") for n in model.graph.node)


def _length(value) -> int | None:
    """How many tensors a sequence has; None for a tensor."""
    return len(value) if isinstance(value, list) else None


def _flat(values) -> list:
    """The tensors of all values: the standard's runner cannot compare sequences of numbers without axes."""
    return [x for v in values for x in (v if isinstance(v, list) else [v])]


def count(outcomes) -> dict[str, int]:
    kinds = Counter(o.kind for o in outcomes)
    return {kind: kinds[kind] for kind in KINDS}
