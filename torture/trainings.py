"""Trains small networks in forked children, for parts of the torture that interrupt them.

`python -m torture.trainings` reads lines of JSON: `seed` (network and optimizer), `prefix` (of the
checkpoints), `fault` (see `_provoke`), `errors` (a file for the error of a training).
It answers with two lines: the child's process id, and its exit status when it has ended.
The digest of the final weights is written to PREFIX.digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.core.disk import files

EPOCHS = 3


def setting(seed: int) -> dict[str, Any]:
    """Network, optimizer and options of a training."""
    r = np.random.RandomState(seed % 2**32)
    optimizer = ["sgd", "adam", "nag", "rmsprop", "lamb", "adamax"][r.randint(6)]
    params: dict[str, Any] = {"learning_rate": 0.01}
    if optimizer in ("sgd", "nag"):
        params["momentum"] = 0.9
    if r.randint(3) == 0:
        params["multi_precision"] = True
    mixed = bool(r.randint(4) == 0)
    return {
        "fused": bool(r.randint(2)),
        "amp": "float16" if mixed else None,
        "loss_scale": "dynamic" if mixed else None,
        "dtype": "float16" if params.get("multi_precision") and not mixed else "float32",
        "optimizer": optimizer,
        "params": params,
        "shuffle": bool(r.randint(2)),
        "hidden": int(r.randint(4, 200)),
        "evaluates": bool(r.randint(2)),
    }


def train(seed: int, prefix: str) -> str:
    """Run or continue a training, with a checkpoint after each epoch; returns the digest of its weights."""
    s = setting(seed)
    mx.random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # what iterators shuffle by
    x = mx.sym.Variable("data", dtype=s["dtype"])
    x = mx.sym.FullyConnected(x, num_hidden=s["hidden"], name="a")
    x = mx.sym.Dropout(mx.sym.Activation(x, act_type="relu"), p=0.3)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="b"), name="softmax")
    made = np.random.RandomState(seed % 2**32)
    values = made.rand(24, 30).astype(s["dtype"]), made.randint(0, 3, 24).astype("float32")
    data = mx.io.NDArrayIter(*values, batch_size=6, shuffle=s["shuffle"])
    module = mx.mod.Module(net, fused_update=s["fused"], amp=s["amp"], loss_scale=s["loss_scale"])
    module.fit(
        data,
        mx.io.NDArrayIter(*values, batch_size=8) if s["evaluates"] else None,
        num_epoch=EPOCHS,
        optimizer=s["optimizer"],
        optimizer_params=s["params"],
        initializer=mx.init.Xavier(),
        checkpoint_prefix=prefix,
        resume=True,
    )
    digest = hashlib.sha256()
    for name, array in sorted(module.get_params()[0].items()):
        digest.update(name.encode() + array.asnumpy().tobytes())
    return digest.hexdigest()


def _provoke(kind: str, number: int, prefix: str) -> None:
    """Provoke a fault at the `number`-th call that writes: "kill" (SIGKILL there), "read-only" (no file can
    be created from there on), "deleted" (the folder is removed); or "full": no file may exceed `number`
    bytes.
    """
    if kind == "full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return
    left = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0 and kind == "read-only" and real is mkstemp:
                raise OSError(30, os.strerror(30), how["dir"])
            if left[0] == 0 and kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if left[0] == 0 and kind == "deleted":
                shutil.rmtree(os.path.dirname(prefix))
            return real(*args, **how)

        return call

    mkstemp = files.tempfile.mkstemp
    files.tempfile.mkstemp = counted(mkstemp)
    for name in ("fsync", "replace", "chmod", "fdopen"):
        setattr(os, name, counted(getattr(os, name)))


def _lift() -> None:
    """Let files be of any size again: what this process says of itself is not to be cut."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if asked.get("fault"):
                    _provoke(*asked["fault"], asked["prefix"])
                digest = train(asked["seed"], asked["prefix"])
                _lift()
                with open(f"{asked['prefix']}.digest", "w") as file:
                    file.write(digest)
                status = 0
            except BaseException as error:
                _lift()
                with open(asked["errors"], "w") as file:
                    file.write(f"{type(error).__name__}: {error}")
            finally:
                os._exit(status)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
