"""JAX's side on a GPU (on the CPU when this file is tested)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
from harness.worker import serve
from jax import Array
from peers.peer import Arrays, Peer

from gpu_columns import pushed
from gpu_columns.jax_nets import arranged, Found, NETS


class OnGPU(Peer):
    """One compiled step; weights, momenta and statistics are donated to it. again: `jax.checkpoint` around
    each block. precision: that of float32 products, in terms of `jax_default_matmul_precision`."""

    def versions(self) -> dict[str, str]:
        device = jax.devices()[0]
        return {"jax": jax.__version__, "device": f"{device.platform}, {device.device_kind}"}

    def build(
        self,
        spec: dict[str, Any],
        precision: str | None = "highest",
        dtype: str = "float32",
        again: bool = False,
    ) -> None:
        if jax.default_backend() != "gpu" and not os.environ.get("MXLITE_BENCHMARK_EMULATED"):
            raise RuntimeError(f"JAX has no GPU here, it would use the {jax.default_backend()}.")
        jax.config.update("jax_default_matmul_precision", precision)
        kind, options = spec["twin"]
        values, states = (arranged(kind, options, Arrays(spec["arrays"], k)) for k in ("arg", "aux"))
        data = Arrays(spec["arrays"], "data")["data"]
        if spec["is_tokens"]:
            data = data.astype("int32")
        elif data.ndim == 4:
            data = data.transpose(0, 2, 3, 1)
        label = Arrays(spec["arrays"], "label")["softmax_label"].astype("int32")
        self.x, self.y = jnp.array(data), jnp.array(label)
        self.kept = (
            {n: jnp.array(a) for n, a in values.items()},
            {n: jnp.zeros_like(a) for n, a in values.items()},
            {n: jnp.array(a) for n, a in states.items()},
        )
        rate, momentum = spec["rate"], spec["momentum"]

        def loss(values: Found, states: Found, x: Array, y: Array) -> tuple[Array, Found]:
            out, found = NETS[kind]({**values, **states}, x, jnp.dtype(dtype), again, **options)
            logs = jax.nn.log_softmax(out.astype(jnp.float32))
            return -jnp.take_along_axis(logs, y[:, None], 1).mean(), found

        def step(
            values: Found, momenta: Found, states: Found, x: Array, y: Array
        ) -> tuple[tuple[Found, Found, Found], Array]:
            (out, states), d = jax.value_and_grad(loss, has_aux=True)(values, states, x, y)
            momenta = {n: momentum * m + d[n] for n, m in momenta.items()}
            return ({n: a - rate * momenta[n] for n, a in values.items()}, momenta, states), out

        self.step = jax.jit(step, donate_argnums=(0, 1, 2)).lower(*self.kept, self.x, self.y).compile()
        self.host_s = 0.0

    def push_step(self) -> None:
        self.kept, self.out = self.step(*self.kept, self.x, self.y)

    def wait(self) -> None:
        jax.block_until_ready((self.kept, self.out))

    def loss(self, turn: int) -> float:
        return float(self.out)

    def run(self, count: int) -> float:
        """Wall-clock time: JAX exposes no events."""
        self.wait()
        start = time.perf_counter()
        self.host_s = pushed(self.push_step, count)
        self.wait()
        return (time.perf_counter() - start) / count

    def host(self) -> float:
        """Host seconds per step of the last run."""
        return self.host_s

    def memory(self) -> dict[str, Any]:
        """Memory of the compiled step, and the allocator's peak since the process started, if counted."""
        found: dict[str, Any] = {}
        wanted = self.step.memory_analysis()
        if wanted is not None:
            found["planned"] = (
                wanted.argument_size_in_bytes
                + wanted.output_size_in_bytes
                - wanted.alias_size_in_bytes
                + wanted.temp_size_in_bytes
            )
        stats = jax.devices()[0].memory_stats() or {}
        for name, theirs in (("allocated", "peak_bytes_in_use"), ("gone", "peak_pool_bytes")):
            if theirs in stats:
                found[name] = stats[theirs]
        return found

    def plan(self) -> dict[str, Any]:
        return {}

    def graphs(self) -> dict[str, Any]:
        return {}


if __name__ == "__main__":
    serve(OnGPU().answer)
