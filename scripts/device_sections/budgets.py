"""Gradients within decreasing budgets: bit for bit those without one."""

from __future__ import annotations

import mxlite as mx
from mxlite.memplan import HostLink

from .checks import Checks
from .nets import bound, networks, same, steps

SHARES = (0.75, 0.5, 0.3, 0.1)


def run(checks: Checks) -> None:
    gpu = mx.gpu(0)
    for name, (net, shapes) in networks(checks).items():
        low, least, plan = 0, None, None
        with checks.check(f"{name}: without a budget") as found:
            checks.need(8)
            executor = bound(net, shapes, gpu)
            plan = executor.memory_plan
            want = steps(executor, 3)
            found["bytes"] = plan.peak_bytes
            del executor
            low = plan.problem.lower_bound_bytes
            try:
                net.simple_bind(gpu, **shapes, memory_budget=1)
            except mx.MemoryBudgetError as error:
                least = error.least_feasible_bytes
            found["least feasible"], found["lower bound"] = least, low
        if plan is None or least is None or least >= plan.peak_bytes:
            continue  # no plan is smaller
        for share in SHARES:
            budget = int(least + share * (plan.peak_bytes - least))
            with checks.check(f"{name}: within {budget} bytes") as found:
                checks.need(8)
                other = bound(net, shapes, gpu, memory_budget=budget)
                made = other.memory_plan
                found["recomputed"], found["extra time, predicted"] = made.recomputed, made.extra_time
                assert same(steps(other, 3), want), "other bits"
                found["measured"] = other.measured_bytes
                assert other.measured_bytes == made.peak_bytes <= budget, found
                del other
        if name != "residual":
            continue
        with checks.check(f"{name}: within a budget, some of it in host memory") as found:
            checks.need(8)
            # A link with almost free copies, so that the plan contains some of them.
            budget, link = (least + plan.peak_bytes) // 2, HostLink(1e13, 1e13)
            other = bound(net, shapes, gpu, memory_budget=budget, offload=link)
            made = other.memory_plan
            found["offloaded"], found["bytes there"] = made.offloaded, made.host_bytes
            assert same(steps(other, 3), want), "other bits"
            assert made.offloaded and other.measured_bytes == made.peak_bytes <= budget, found
            assert other.measured_host_bytes == made.host_bytes, found
            del other
