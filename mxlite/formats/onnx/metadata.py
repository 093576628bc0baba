"""Names and shapes that a model declares, read without importing it."""

from __future__ import annotations

from typing import Any

from .model import open_model


def get_model_metadata(model_file: Any) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Names and shapes of a model's inputs and outputs, as MXNet's `get_model_metadata`.

    {'input_tensor_data': [(name, shape), ...], 'output_tensor_data': [...]}; an open length is 0.
    """
    model, _ = open_model(model_file)
    stored = {t.name for t in model.graph.initializer}
    return {
        "input_tensor_data": [_described(i) for i in model.graph.input if i.name not in stored],
        "output_tensor_data": [_described(o) for o in model.graph.output],
    }


def _described(info: Any) -> tuple[str, tuple[int, ...]]:
    return info.name, tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
