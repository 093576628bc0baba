"""What is raised for a model that is sound but uses something mxlite does not have."""

from __future__ import annotations

from ...core import FormatError


class NotSupportedError(FormatError):
    """A part of the ONNX standard that mxlite cannot run; names the node, the operator, the opset and why."""
