"""The interface by which the ONNX project runs its own tests on a framework, `onnx.backend.base`.

    from mxlite.formats.onnx import backend
    outputs = backend.run_model(onnx.load("net.onnx"), [x])

Shapes, axes and the like are inputs in many of these tests, so a model is imported when the inputs are there:
where the shape of a result depends on an input's numbers, they are read; everything else stays a computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, ModelProto, NodeProto
from onnx.backend.base import Backend as OnnxBackend, BackendRep, Device, DeviceType

from ...core import FormatError
from ...symbol import Group
from ..building.builder import Builder
from ..building.call import evaluate
from .importer import read
from .model import open_model
from .node import Value
from .sequence import SequenceValue


class MXLiteRep(BackendRep):
    """A model that is imported when its inputs are given."""

    def __init__(self, model: Any, folder: str | None) -> None:
        self._model = model
        self._folder = folder

    def run(self, inputs: Any, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """The outputs for arrays in the order of the model's inputs, or by name."""
        stored = {t.name for t in self._model.graph.initializer}
        names = [i.name for i in self._model.graph.input if i.name not in stored]
        if not isinstance(inputs, Mapping):
            values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(values) > len(names):
                names = [i.name for i in self._model.graph.input]
            inputs = dict(zip(names, values, strict=True))
        known = {k: [np.asarray(p) for p in v] if isinstance(v, list) else v for k, v in inputs.items()}
        known = {k: np.asarray(v) if isinstance(v, np.generic) else v for k, v in known.items()}
        shapes = {k: v.shape for k, v in known.items() if isinstance(v, np.ndarray)}
        declared = {i.name: i for i in self._model.graph.input}
        shapes = {k: s for k, s in shapes.items() if declared[k].type.HasField("tensor_type")}
        reader, outputs = read(self._model, self._folder, shapes, known, as_written=True)
        return _computed(reader.builder, outputs)


def _computed(builder: Builder, outputs: list[tuple[str, Value]]) -> tuple[Any, ...]:
    """The numbers of the outputs, a list of arrays for a sequence; all of one run."""
    tensors = [
        (name, v)
        for name, value in outputs
        for v in (value.elements if isinstance(value, SequenceValue) else (value,))
    ]
    symbols = [builder.output(v, name) for name, v in tensors if v.array is None]
    made = iter(evaluate(Group(symbols), builder.arrays) if symbols else ())
    arrays = iter([next(made) if v.array is None else v.array for _, v in tensors])
    return tuple(
        [next(arrays) for _ in value.elements] if isinstance(value, SequenceValue) else next(arrays)
        for _, value in outputs
    )


class MXLiteBackend(OnnxBackend):
    """mxlite on the CPU."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> MXLiteRep:
        if not cls.supports_device(device):
            raise FormatError(f"device {device!r} is not supported; use 'CPU'.")
        return MXLiteRep(*open_model(model))

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[np.ndarray, ...]:
        """Run one operator; `opset_version` may say of which opset, else it is the newest."""
        values = [np.asarray(v) for v in inputs]
        names = [n for n in node.input if n]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in zip(names, values, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
        opset = (
            {"opset_imports": [helper.make_opsetid(node.domain, kwargs["opset_version"])]}
            if ("opset_version" in kwargs)
            else {}
        )
        graph = helper.make_graph([node], node.op_type or "node", infos, outputs)
        return cls.prepare(helper.make_model(graph, **opset), device).run(values)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU


is_compatible = MXLiteBackend.is_compatible
prepare = MXLiteBackend.prepare
run_model = MXLiteBackend.run_model
run_node = MXLiteBackend.run_node
supports_device = MXLiteBackend.supports_device
