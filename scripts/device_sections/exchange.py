"""Arrays exchanged with CuPy and PyTorch, without a copy and in the order of streams."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import mxlite as mx

from .checks import Checks, Skip


def module(checks: Checks, name: str) -> Any:
    if checks.emulated:
        raise Skip("an emulated address means nothing to others")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(str(error)) from None


def run(checks: Checks) -> None:
    gpu = mx.gpu(0)
    with checks.check("PyTorch sees an array") as found:
        torch = module(checks, "torch")
        a = mx.nd.arange(0, 1000, ctx=gpu)
        seen = torch.from_dlpack(a)
        found["device"] = str(seen.device)
        assert np.array_equal(seen.cpu().numpy(), np.arange(1000, dtype=np.float32))
        a += 1  # queued on our stream; a new view waits for it
        assert float(torch.from_dlpack(a)[0]) == 1.0
        found["same memory"] = seen.data_ptr() == torch.from_dlpack(a).data_ptr()
        assert found["same memory"]
    with checks.check("an array over PyTorch's memory") as found:
        torch = module(checks, "torch")
        x = torch.arange(1000, device="cuda", dtype=torch.float32)
        b = mx.nd.from_dlpack(x)
        assert b.context == gpu and np.array_equal(b.asnumpy(), np.arange(1000, dtype=np.float32))
        x += 5
        torch.cuda.synchronize()
        assert b.asnumpy()[0] == 5
        del x
        assert (b * 2).asnumpy()[0] == 10  # the memory is still alive
    with checks.check("CuPy sees an array, and gives one") as found:
        cupy = module(checks, "cupy")
        a = mx.nd.arange(0, 100, ctx=gpu)
        seen = cupy.from_dlpack(a)
        assert float(seen.sum()) == 4950
        interface = getattr(a, "__cuda_array_interface__", None)
        found["__cuda_array_interface__"] = interface is not None
        if interface is not None:
            assert cupy.asarray(a).data.ptr == seen.data.ptr
        c = mx.nd.from_dlpack(cupy.arange(10, dtype=cupy.float32))
        assert c.asnumpy().sum() == 45
        d = mx.nd.from_cuda_array_interface(cupy.arange(10, dtype=cupy.float32))
        assert d.asnumpy().sum() == 45
    with checks.check("JAX sees an array") as found:
        module(checks, "jax")
        jnp = importlib.import_module("jax.numpy")
        a = mx.nd.arange(0, 100, ctx=gpu)
        a.wait_to_read()
        assert float(jnp.from_dlpack(a).sum()) == 4950
