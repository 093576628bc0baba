"""Programs of many small parameters on a backend of a test's own."""

from __future__ import annotations

from importlib import import_module

import mxlite as mx


def bind_with(monkeypatch, backend):
    """Programs bound from here on run on `backend`, whatever their context."""
    for place in ("bind", "plan.candidates", "run.link"):
        monkeypatch.setattr(import_module(f"mxlite.executor.{place}"), "backend_of", lambda context: backend)


def network(layers=5, hidden=8):
    x = mx.sym.Variable("data")
    for i in range(layers):
        x = mx.sym.FullyConnected(x, num_hidden=hidden, name=f"fc{i}")
        x = mx.sym.Activation(x, act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="score"), name="softmax")
