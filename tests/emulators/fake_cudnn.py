"""Stands for the package `cudnn` where there is none: notes how graphs are built and runs them with numpy.

As strict as the real one where that matters: what comes in which order, that outputs of gradients have
shapes, that a call has an address for every tensor and scratch, that a handle is used on the stream it was
set to. Strides are taken at their word, so that a wrong one gives wrong numbers.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from mxlite.ops.nn import conv
from mxlite.ops.nn.conv_kernels import Geometry

__version__ = "0"
data_type = Enum("data_type", "FLOAT HALF BFLOAT16 BOOLEAN")
numerical_note = Enum("numerical_note", "NONDETERMINISTIC TENSOR_CORE DOWN_CONVERT_INPUTS")
scalar_type = Enum("scalar_type", "COMPILE_TIME_CONST RUNTIME_PARAM")
heur_mode = Enum("heur_mode", "A FALLBACK")
TYPES = {data_type.FLOAT: np.float32, data_type.HALF: np.float16, data_type.BFLOAT16: ml_dtypes.bfloat16}
WORKSPACE = 300
state: Any = SimpleNamespace(handles=0, stream=0, refuse=lambda graph: False, executed=[], foreign=[])


class cudnnGraphNotSupportedError(Exception):
    pass


def backend_version():
    return 0


class Handle:
    stream = 0


def create_handle():
    state.handles += 1
    return Handle()


def set_stream(handle, stream):
    handle.stream = stream


class Tensor:
    def __init__(self, dim=None, stride=None, data_type=None, uid=None, how=None):
        self.dim, self.stride, self.data_type, self.uid, self.how = dim, stride, data_type, uid, how
        self.is_output = False

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self

    def set_output(self, yes):
        self.is_output = yes
        return self

    def set_data_type(self, kind):
        self.data_type = kind
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def view(self, address):
        """The array at an address, as (N, C, *S)."""
        dtype = np.dtype(TYPES[self.data_type])
        assert address % 16 == 0 and len(self.dim) == len(self.stride)
        assert all(type(v) is int for v in (*self.dim, *self.stride))
        count = 1 + sum((d - 1) * s for d, s in zip(self.dim, self.stride))
        flat = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)
        strides = [s * dtype.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(flat, self.dim, strides, writeable=True)


class pygraph:
    def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle=None, **device):
        assert intermediate_data_type is compute_data_type is data_type.FLOAT
        assert isinstance(handle, Handle) or device
        self.io, self.inputs, self.made, self.step = io_data_type, [], [], 0
        self.notes, self.limit, self.barred = [], None, []
        self.plans = [*state.foreign, SimpleNamespace(cpp_index=0, name="eng0_k2=4")]

    def tensor(self, dim, stride, data_type, uid):
        made = Tensor(dim, stride, data_type, uid)
        self.inputs.append(made)
        return made

    def _operation(self, how):
        made = Tensor(how=how)
        self.made.append(made)
        return made

    def conv_fprop(self, image, weight, **how):
        return self._operation(("fprop", image, weight, how))

    def conv_dgrad(self, loss, filter, **how):
        return self._operation(("dgrad", loss, filter, how))

    def conv_wgrad(self, image, loss, **how):
        return self._operation(("wgrad", image, loss, how))

    def add(self, a, b):
        return self._operation(("add", a, b))

    def sub(self, a, b):
        return self._operation(("sub", a, b))

    def mul(self, a, b):
        return self._operation(("mul", a, b))

    def cmp_gt(self, input, comparison):
        return self._operation(("cmp_gt", input, comparison))

    def tensor_scalar(self, value, kind):
        assert kind in scalar_type and type(value) is float
        return Tensor(how=("number", value))

    def batchnorm(self, input, scale, bias, in_running_mean, in_running_var, epsilon, momentum):
        given = (input, scale, bias, in_running_mean, in_running_var, epsilon, momentum)
        return self._several(("batchnorm", *given), 5)

    def batchnorm_backward(self, grad, input, scale, mean, inv_variance):
        return self._several(("batchnorm_backward", grad, input, scale, mean, inv_variance), 3)

    def relu(self, input):
        return self._operation(("relu", input))

    def _several(self, how, count):
        shared = Tensor(how=how)
        return tuple(self._operation(("part", shared, i)) for i in range(count))

    def sdpa(self, q, k, v, generate_stats, attn_scale, use_causal_mask):
        out, stats = self._several(("sdpa", q, k, v, attn_scale, use_causal_mask), 2)
        if not generate_stats:
            self.made.remove(stats)
        return out, stats if generate_stats else None

    def sdpa_backward(self, q, k, v, o, dO, stats, attn_scale, use_causal_mask, use_deterministic_algorithm):
        assert use_deterministic_algorithm
        return self._several(("sdpa_backward", q, k, v, o, dO, stats, attn_scale, use_causal_mask), 3)

    def _next(self, before, after):
        assert self.step == before, f"step {after} after {self.step}"
        self.step = after

    def validate(self):
        self._next(0, 1)
        for t in self.made:
            assert t.how[0] not in ("dgrad", "wgrad") or t.dim, "the shape of a gradient is ambiguous"
        numbers = [t.uid for t in (*self.inputs, *(t for t in self.made if t.is_output))]
        assert None not in numbers and len(set(numbers)) == len(numbers)

    def build_operation_graph(self):
        self._next(1, 2)

    def create_execution_plans(self, modes):
        assert modes == [heur_mode.A, heur_mode.FALLBACK]
        self._next(2, 3)
        if state.refuse(self):
            raise cudnnGraphNotSupportedError("no engine")

    def get_plan_name_at_index(self, index):
        assert self.step == 3
        return self.plans[index].name

    def deselect_engines(self, names):
        assert self.step == 3
        self.barred += names

    def deselect_numeric_notes(self, notes):
        assert self.step == 3
        self.notes += notes

    def deselect_workspace_greater_than(self, limit):
        assert self.step == 3
        self.limit = limit

    def check_support(self):
        self._next(3, 4)

    def build_plans(self):
        self._next(4, 5)

    def get_workspace_size(self):
        assert self.step == 5
        return WORKSPACE

    def execute(self, pack, workspace, handle):
        assert self.step == 5 and handle.stream == state.stream
        chosen = next(p for p in self.plans if p.name not in self.barred)
        assert chosen.cpp_index is not None, "an engine of the front end's own"
        outputs = [t for t in self.made if t.is_output]
        assert set(pack) == {t.uid for t in (*self.inputs, *outputs)}
        assert all(type(a) is int for a in (*pack.values(), workspace))
        assert workspace % 256 == 0, "scratch that no cudaMalloc would give"
        if self.get_workspace_size():
            ctypes.memset(workspace, 0xFF, self.get_workspace_size())
        results = [(t, value(t, pack)) for t in outputs]
        for t, result in results:
            t.view(pack[t.uid])[...] = result
        state.executed.append(self)


def value(t, pack):
    """What a tensor holds, in float64."""
    if t.how is None:
        return t.view(pack[t.uid]).astype(np.float64)
    name, *operands = t.how
    if name == "number":
        return np.float64(operands[0])
    if name in ARITHMETIC:
        return ARITHMETIC[name](*(value(o, pack) for o in operands))
    if name == "part":
        several = attention if operands[0].how[0].startswith("sdpa") else batch_norm
        return several(operands[0].how, pack)[operands[1]]
    if name == "relu":
        return np.maximum(value(*operands, pack), 0)
    first, second, how = operands
    a, b = value(first, pack), value(second, pack)
    data, out, kernel = {
        "fprop": lambda: (a.shape, None, b.shape),
        "dgrad": lambda: (tuple(t.dim), a.shape, b.shape),
        "wgrad": lambda: (a.shape, b.shape, tuple(t.dim)),
    }[name]()
    assert how["pre_padding"] == how["post_padding"]
    pad, stride, dilate = (tuple(how[n]) for n in ("pre_padding", "stride", "dilation"))
    sizes = zip(data[2:], kernel[2:], stride, dilate, pad)
    size = tuple((n + 2 * p - (k - 1) * d - 1) // s + 1 for n, k, s, d, p in sizes)
    assert out in (None, (data[0], kernel[0], *size))
    groups = data[1] // kernel[1]
    how = (size, kernel[2:], stride, dilate, pad, groups, np.dtype("float64"))
    g = Geometry(data[0], data[1], data[2:], kernel[0], *how)
    work = np.empty(max(conv.forward_bytes(g), conv.backward_bytes(g)), np.uint8)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if name == "fprop":
        result = np.empty((data[0], kernel[0], *size))
        conv.make_out(np, g, a, b, result, work)
    elif name == "dgrad":
        result = np.empty(data)
        conv.make_gradients(np, g, a, None, b, result, None, work)
    else:
        result = np.empty(kernel)
        conv.make_gradients(np, g, b, a, None, None, result, work)
    return result


ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "cmp_gt": np.greater}


def batch_norm(how, pack):
    """(out, mean, 1 / std, two moved averages) or (d_data, d_gamma, d_beta), from the definition."""
    name, *operands = how
    axes = lambda x: (0, *range(2, x.ndim))  # noqa: E731
    if name == "batchnorm":
        x, gamma, beta, old_mean, old_var, eps, momentum = (value(o, pack) for o in operands)
        mean, var = x.mean(axes(x), keepdims=True), x.var(axes(x), keepdims=True)
        gain = 1 / np.sqrt(var + eps)
        moved = [(1 - momentum) * old + momentum * new for old, new in ((old_mean, mean), (old_var, var))]
        return (x - mean) * gain * gamma + beta, mean, gain, *moved
    d, x, gamma, mean, gain = (value(o, pack) for o in operands)
    scaled, count = (x - mean) * gain, x.size // x.shape[1]
    d_beta, d_gamma = d.sum(axes(x), keepdims=True), (d * scaled).sum(axes(x), keepdims=True)
    return gamma * gain * (d - d_beta / count - scaled * d_gamma / count), d_gamma, d_beta


def attention(how, pack):
    """(out, stats) or (dQ, dK, dV), from the definition."""
    name, *tensors, scale, causal = how
    q, k, v, *rest = (value(t, pack) for t in tensors)
    share = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x, share, axis=1) for x in (k, v))
    scores = q @ keys.swapaxes(2, 3) * scale
    if causal:
        scores[..., np.triu(np.ones(scores.shape[2:], bool), 1)] = -np.inf
    if name == "sdpa":
        top = scores.max(-1, keepdims=True)
        stats = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
        return np.exp(scores - stats) @ values, stats
    out, d_out, stats = rest
    weights = np.exp(scores - stats)
    d_scores = weights * (d_out @ values.swapaxes(2, 3) - (d_out * out).sum(-1, keepdims=True)) * scale

    def of_heads(x):
        return x.reshape(x.shape[0], -1, share, *x.shape[2:]).sum(2)

    d_key, d_value = d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d_out
    return d_scores @ keys, of_heads(d_key), of_heads(d_value)
