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
    """Of generated kernels."""
    try:
        from llvmlite import binding
    except (ImportError, OSError):
        return "none"
    return f"{numbers(binding.llvm_version_info)} for {binding.get_host_cpu_name()}"


class MXLite(Peer):
    """A Module whose step includes the update, as `fit` makes it."""

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
    ) -> None:
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
                optimizer="sgd",
                optimizer_params=dict(
                    learning_rate=spec["rate"],
                    momentum=spec["momentum"],
                    wd=0.0,
                    rescale_grad=1 / spec["rows"],
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
        """`count` budgets for the whole program, the least that works first, in equal ratios of the arena up
        to, not including, what it has now."""
        plan, budgeted = self.module.memory_plan, self.budgeted()
        fixed, most = budgeted.problem.fixed_total, plan.arena_bytes
        try:
            budgeted.within(1)
            least = most
        except mx.MemoryBudgetError as error:
            least = error.least_feasible_bytes - fixed
        return [fixed + int(least * (most / least) ** (i / count)) for i in range(count)]

    def digest(self) -> str:
        """Of all weights, statistics and states of the optimizer, to the last bit."""
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
        """What a budget has cost; and bytes that no plan does without in which nothing runs twice: what is
        fixed, and all that backward reads of the forward pass."""
        plan = self.module.memory_plan
        return {
            "method": plan.how,
            "extra_time": plan.extra_time,
            "recomputed": plan.recomputed,
            "fixed": plan.problem.fixed_total,
            "kept": kept_bytes(plan.problem),
        }

    def budgeted(self) -> MemoryPlan:
        """One within a budget: without one, a step makes what is cheap again. Its kernels are timed now, if
        they are to be and were not."""
        if not self.spec["train"]:
            return self.module.memory_plan
        asked = dict(memory_budget=2**61, device=self.costs, **self._step())
        return self.module.symbol.memory_plan(self.context, **asked)

    def tried(self, budgets: Sequence[int]) -> list[float]:
        """Predicted seconds of a step without a budget, then within each, all plans tried in turns: also what
        plans predict that are bound with `device="measured"` from then on."""
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
        """Of this program, then of those `beside` it, by round: the seconds of a step, and those that all
        threads have run. All take turns, each with a step before it that does not count and finds in the
        cache what others have left there."""
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
        """Let go of the programs beside this one."""
        self.programs = [self]

    def _step(self) -> dict[str, Any]:
        """What a training step is planned for."""
        shapes = {d.name: d.shape for d in (*self.module.data_shapes, *self.module.label_shapes)}
        return dict(optimizer=self.module._optimizer, amp=self.amp, **shapes)

    def least(self, nbytes: int) -> int:
        """`nbytes` if there is a plan for so many, else the least for which one is known."""
        try:
            return self.budgeted().within(nbytes).budget_bytes or nbytes
        except mx.MemoryBudgetError as error:
            return error.least_feasible_bytes

    def profile(self, count: int) -> dict[str, Any]:
        """Where the time of `count` steps goes, by `mx.profiler`: {"step": seconds of one, "kinds": [...],
        "peak": what the profiler has found the machine to do}, each kind with its seconds, calls, flops and
        bytes in one step."""
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
