"""mxlite's side."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

import mxlite as mx
from mxlite.backends.cpu import onednn
from mxlite.executor import Executor
from mxlite.memplan import MemoryPlan
from mxlite.memplan.remat.split import kept_bytes
from peers.peer import Arrays, inferred, Peer, trained


def numbers(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def llvm() -> str:
    """Version of LLVM used for generated kernels."""
    try:
        from llvmlite import binding
    except (ImportError, OSError):
        return "none"
    return f"{numbers(binding.llvm_version_info)} for {binding.get_host_cpu_name()}"


class MXLite(Peer):
    """A Module whose step includes the update, as in `fit`."""

    context = mx.cpu()

    @property
    def executor(self) -> Executor:  # type: ignore[override]
        executor: Executor = self.module._executor
        return executor

    def versions(self) -> dict[str, str]:
        found = onednn.library()
        return {
            "mxlite": mx.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "oneDNN": "none" if found is None else f"{numbers(found.version)} on {found.instructions}",
            "LLVM": llvm(),
        }

    def build(
        self,
        spec: dict[str, Any],
        amp: str | None = None,
        memory_budget: int | str | None = None,
        device: str | None = None,
        narrow_params: bool = False,
        kvstore: str | None = None,
    ) -> None:
        store = None if kvstore is None else mx.kv.create(kvstore)
        self.amp, self.costs = amp, device
        self.options = dict(amp=amp, device=device, narrow_params=narrow_params)
        arrays = {k: Arrays(spec["arrays"], k) for k in ("arg", "aux", "data", "label")}
        train = spec["train"]
        self.labels = arrays["label"]["softmax_label"]
        data = {n: mx.nd.array(a, ctx=self.context) for n, a in arrays["data"].items()}
        label = {n: mx.nd.array(a, ctx=self.context) for n, a in arrays["label"].items()}
        self.module = mx.mod.Module(
            mx.sym.load(spec["symbol"]),
            list(data),
            list(label),
            context=self.context,
            memory_budget=memory_budget,
            fused_update=True,
            device=device,
            **({"amp": amp, "narrow_params": narrow_params} if amp else {}),
        )
        self.module.bind(
            [(n, a.shape) for n, a in data.items()],
            [(n, a.shape) for n, a in label.items()] if train else None,
            for_training=train,
        )
        values, states = ({n: mx.nd.array(a) for n, a in arrays[k].items()} for k in ("arg", "aux"))
        self.module.init_params(arg_params=values, aux_params=states)
        if train:
            self.module.init_optimizer(
                store,
                optimizer="sgd",
                optimizer_params=dict(
                    learning_rate=spec["rate"],
                    momentum=spec["momentum"],
                    wd=0.0,
                    rescale_grad=1 / spec["rows"] / (1 if store is None else store.num_workers),
                ),
            )
        self.batch = mx.io.DataBatch(list(data.values()), list(label.values()) if train else None)

    def push_step(self) -> None:
        if self.spec["train"]:
            self.module.forward_backward(self.batch)
            self.module.update()
        else:
            self.module.forward(self.batch, is_train=False)

    def wait(self) -> None:
        mx.nd.waitall()

    def loss(self, turn: int) -> float:
        out = self.module.get_outputs()[0].asnumpy()
        return trained(out, self.labels) if self.spec["train"] else inferred(out, self.labels, turn)

    def memory(self) -> dict[str, int]:
        plan = self.module.memory_plan
        return {**super().memory(), "planned": plan.peak_bytes, "measured": self.module.measured_bytes}

    def budgets(self, count: int) -> list[int]:
        """`count` budgets for the whole program, starting with the least feasible one, in equal ratios of the
        arena up to, but not including, its present size."""
        plan, budgeted = self.module.memory_plan, self.budgeted()
        fixed, most = budgeted.problem.fixed_total, plan.arena_bytes
        try:
            budgeted.within(1)
            least = most
        except mx.MemoryBudgetError as error:
            least = error.least_feasible_bytes - fixed
        return [fixed + int(least * (most / least) ** (i / count)) for i in range(count)]

    def digest(self) -> str:
        """Digest of all weights, statistics and optimizer states, bit by bit."""
        found = hashlib.sha256()
        for arrays in self.module.get_params():
            for name in sorted(arrays):
                found.update(arrays[name].asnumpy().tobytes())
        if self.spec["train"]:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "states"
                self.module.save_optimizer_states(str(path))
                found.update(path.read_bytes())
        return found.hexdigest()

    def plan(self) -> dict[str, Any]:
        """Cost of the budget, and the bytes that every plan without recomputation needs: fixed arrays, and
        the forward results that backward reads."""
        plan = self.module.memory_plan
        return {
            "method": plan.how,
            "extra_time": plan.extra_time,
            "recomputed": plan.recomputed,
            "fixed": plan.problem.fixed_total,
            "kept": kept_bytes(plan.problem),
        }

    def budgeted(self) -> MemoryPlan:
        """A plan within a budget (without one, a step recomputes cheap results). Kernels are timed now if
        that is requested and they were not timed before."""
        if not self.spec["train"]:
            return self.module.memory_plan
        asked = dict(memory_budget=2**61, device=self.costs, **self._step())
        return self.module.symbol.memory_plan(self.context, **asked)

    def tried(self, budgets: Sequence[int]) -> list[float]:
        """Predicted seconds of a step without a budget, then within each, all plans timed in turns; plans
        that are bound with `device="measured"` afterwards predict the same."""
        done = self.module.symbol.calibrate(self.context, budgets=budgets, **self._step())
        return [plan.predicted_seconds for plan in done.plans]

    def beside(self, budgets: Sequence[int]) -> None:
        """Bind the same network within each of these budgets too, in this process, and run a step of each."""
        self.programs: list[MXLite] = [self]
        for nbytes in budgets:
            other = type(self)()
            other.load(self.spec, memory_budget=nbytes, **self.options)
            other.run(1)
            self.programs.append(other)

    def turns(self, rounds: int) -> list[list[tuple[float, float]]]:
        """Times of this program, then of those bound by `beside`, by round: seconds of a step, and CPU
        seconds of all threads. They take turns; each timed step follows a step that is not timed and that
        refills the caches."""
        found: list[list[tuple[float, float]]] = [[] for _ in self.programs]
        for r in range(rounds):
            k = r % len(self.programs)
            for n in (*range(k, len(self.programs)), *range(k)):
                self.programs[n].run(1)
                start = time.process_time()
                seconds = self.programs[n].run(1)
                found[n].append((seconds, time.process_time() - start))
        return found

    def alone(self) -> None:
        """Release the programs bound by `beside`."""
        self.programs = [self]

    def _step(self) -> dict[str, Any]:
        """Arguments for planning a training step."""
        shapes = {d.name: d.shape for d in (*self.module.data_shapes, *self.module.label_shapes)}
        return dict(optimizer=self.module._optimizer, amp=self.amp, **shapes)

    def least(self, nbytes: int) -> int:
        """`nbytes` if a plan within it is known, otherwise the least feasible budget known."""
        try:
            return self.budgeted().within(nbytes).budget_bytes or nbytes
        except mx.MemoryBudgetError as error:
            return error.least_feasible_bytes

    def profile(self, count: int) -> dict[str, Any]:
        """Profile of `count` steps by `mx.profiler`: {"step": seconds of one, "kinds": [...], "peak": the
        machine's peak rates as measured by the profiler}, each kind with its seconds, calls, flops and bytes
        in one step."""
        mx.profiler.set_state("run")
        seconds = self.run(count)
        mx.profiler.set_state("stop")
        found = json.loads(mx.profiler.dumps(reset=True, format="json"))
        kinds = [
            {
                "op": row["Operator"],
                "kernel": row["Kernel"],
                "type": row["Type"],
                "seconds": row["Total"] / 1e3 / count,
                "calls": row["Count"] / count,
                "flops": row["Flops"] / count,
                "nbytes": row["Bytes"] / count,
            }
            for row in found["Kernels"]
        ]
        return {"step": seconds, "kinds": kinds, "peak": found["Peak"]}


if __name__ == "__main__":
    serve(MXLite().answer)
