"""Networks and arrays in the formats of others: symbol JSON, ONNX."""

from . import onnx as onnx
from .params import load_params as load_params, save_params as save_params, stored_params as stored_params
