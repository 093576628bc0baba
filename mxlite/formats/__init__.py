"""Networks and arrays in the formats of others: symbol JSON, ONNX, PyTorch, safetensors."""

from . import onnx as onnx, torch as torch
from .params import load_params as load_params, save_params as save_params, stored_params as stored_params
from .safetensors import load_safetensors as load_safetensors, save_safetensors as save_safetensors
