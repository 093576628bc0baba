"""The way from a symbol to an ONNX file."""

from .exporter import export_model as export_model
