"""`mx.formats.onnx`: models in the ONNX format. Needs the package onnx: pip install 'mxlite[onnx]'."""

from ..building.errors import NotSupportedError as NotSupportedError
from .errors import OpenShapeError as OpenShapeError
from .export import export_model as export_model
from .importer import import_model as import_model
from .metadata import get_model_metadata as get_model_metadata
