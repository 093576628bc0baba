"""The headline: 991 convolutions, and the thesis's LSTM, next to the best known or published figures."""

from __future__ import annotations

from time import process_time
from typing import Any

from harness import markdown
from networks.feature_maps import feature_maps, memonger_resnet

import mxlite as mx
from mxlite.memplan import live_ranges, make_schedule, MemoryPlan, Problem
from planning import anchors
from planning.asking import Asked
from planning.report import percent, Report, say

GB = 2**30
ABOUT = """\
memonger's ResNet with stages [15, 120, 180, 15], batch 32, 224x224, float32, feature maps and their
gradients only; GB are 2^30 bytes, per cents are of a step. Published (T. Chen et al. 2016, for a network of
as many layers whose stages are not given): 48 GB without recomputation, 7 GB for about 30 % more time. Their
scheme on this problem: 6.75 GB for 36.6 %. Best known: see planning/anchors.py.

"""
QUICK_STAGES = (3, 24, 36, 3)
QUICK_BUDGETS = (7, 3)


def measure(report: Report, quick: bool) -> None:
    stages = QUICK_STAGES if quick else anchors.HEADLINE_STAGES
    say(f"headline: {stages}")
    asked = Asked(memonger_resnet(stages))
    if quick:
        shares(report, asked)
        return
    title = "Headline: 991 convolutions"
    text = ABOUT + "That the problem is the same, schedule by schedule:\n\n" + proofs(asked.problem) + "\n"
    report.put(title, text)
    rows: list[list[object]] = []
    head = ["budget GB", "ours +%", "best known +%", "ours / best known", "arena / budget", "how", "plan s"]
    for budget, best in anchors.EXTRA_AT.items():
        say(f"headline: {budget} GB")
        began = process_time()
        plan = asked.within(budget * GB)
        spent = process_time() - began
        if plan is None:
            rows.append([budget, "-", best, "-", "-", "no plan", f"{spent:.1f}"])
        else:
            extra = 100 * plan.extra_time
            used = f"{plan.arena_bytes / GB / budget:.4f}"
            rows.append(
                [budget, f"{extra:.2f}", best, f"{extra / best:.3f}", used, plan.method, f"{spent:.1f}"]
            )
        report.put(title, text + markdown(head, rows))
    text += markdown(head, rows) + "\n"
    met = [r[1] != "-" and float(str(r[1])) <= float(str(r[2])) for r in rows]
    report.target("991: extra time at most the best known", "10 budgets", f"{sum(met)} of 10", all(met))
    at7 = asked.within(7 * GB)
    if at7 is not None:
        reached = f"{percent(at7.extra_time)} %"
        report.target("991: extra time at 7 GB", "below 15.7 %", reached, at7.extra_time < 0.157)
    rows = []
    for extra_percent, best in anchors.GB_AT.items():
        say(f"headline: GB at +{extra_percent} %")
        plan = asked.least_for(extra_percent / 100)
        gb = plan.arena_bytes / GB
        rows.append([extra_percent, f"{gb:.2f}", best, f"{gb / best:.3f}", percent(plan.extra_time)])
        report.target(f"991: GB at +{extra_percent} %", f"at most {best}", f"{gb:.2f}", round(gb, 1) <= best)
        report.put(
            title, text + markdown(["extra at most %", "ours GB", "best known GB", "ratio", "extra %"], rows)
        )


def proofs(problem: Problem) -> str:
    """Table of fixed schedules whose figures are known."""
    apart = feature_maps_apart()
    each = sum(v.nbytes for v in apart.values[1 : apart.num_forward + 1])
    each += sum(v.nbytes for v in problem.values if v.name.startswith("d_"))
    found: list[tuple[float, float | None]] = [(each / GB, None)]
    for drop in ((), ("BatchNorm",), ("BatchNorm", "elemwise_add")):
        schedule = make_schedule(problem, [int(t.op in drop) for t in problem.tasks[: problem.num_forward]])
        found.append((live_ranges(schedule).max_live_bytes / GB, 100 * schedule.extra_time))
    rows: list[list[object]] = []
    for (name, (gb, extra)), (ours, more) in zip(anchors.PROOFS.items(), found):
        shown = ["-", "-"] if extra is None or more is None else [f"{more:.1f}", extra]
        rows.append([name, f"{ours:.2f}", gb, *shown])
    return markdown(["schedule", "GB here", "GB known", "+% here", "+% known"], rows)


def feature_maps_apart() -> Problem:
    """The same network with a separate buffer for each norm."""
    net = mx.models.resnet(version="memonger", stages=anchors.HEADLINE_STAGES)
    return feature_maps(net, {"data": (32, 3, 224, 224)})


def shares(report: Report, asked: Asked) -> None:
    """Measure a smaller network instead of the headline (--quick)."""
    rows: list[list[object]] = []
    keep_all = asked.keep_all.arena_bytes
    for share, best in anchors.SHARES_OF_199.items():
        plan = asked.within(int(share * keep_all))
        if plan is not None:
            ratio = 100 * plan.extra_time / best
            rows.append([f"{share:.2f}", percent(plan.extra_time), f"{best:.2f}", f"{ratio:.3f}"])
    head = ["budget / keep-all", "ours +%", "best known +%", "ratio"]
    report.put("199 convolutions instead of 991", markdown(head, rows))


LSTM = """\
4 layers of 1024, batch 64, inputs of 50 numbers, 5000 classes; bytes as MXNet counts them: results of
operators, outputs among them, in-place and sharing on. Published (T. Chen et al. 2016): more than 4 times
below sharing. The network of their script has a cross-entropy for each step, so its outputs are losses and
no probabilities, and it plans 1000 steps.

"""
LSTM_FORMS: dict[str, dict[str, Any]] = {
    "a cross-entropy each step": dict(joined=False, loss="cross_entropy"),
    "one softmax over all steps": dict(),
}
LSTM_ROWS = (
    ("one softmax over all steps", 64),
    ("a cross-entropy each step", 64),
    ("a cross-entropy each step", 200),
    ("a cross-entropy each step", 1000),
)


def lstm(report: Report, quick: bool) -> None:
    """Compare keep-all with the least memory."""
    rows: list[list[object]] = []
    for form, steps in [(form, 8) for form in LSTM_FORMS] if quick else LSTM_ROWS:
        say(f"LSTM: {form}, {steps} steps")
        began = process_time()
        keep_all, least = _most_and_least(steps, LSTM_FORMS[form])
        spent = process_time() - began
        sizes = [p.arena_bytes + p.breakdown["outputs"] for p in (keep_all, least)]
        ratio = sizes[0] / sizes[1]
        rows.append(
            [form, steps, len(least.problem.tasks), *(f"{s / 2**20:.0f}" for s in sizes), f"{ratio:.2f}",
             f"{keep_all.arena_bytes / least.arena_bytes:.2f}", percent(least.extra_time), f"{spent:.0f}"]
        )  # fmt: skip
        head = ["form", "steps", "tasks", "sharing MiB", "least MiB", "ratio", "ratio without outputs"]
        report.put("LSTM", LSTM + markdown([*head, "extra %", "all of it s"], rows))
        if not quick and "cross-entropy" in form:
            target = f"more than {anchors.LSTM_RATIO:g}"
            name = f"LSTM, {form}, {steps} steps: sharing / least"
            report.target(name, target, f"{ratio:.2f}", ratio > anchors.LSTM_RATIO)


def _most_and_least(steps: int, form: dict[str, Any]) -> tuple[MemoryPlan, MemoryPlan]:
    """The plan that keeps everything and that of the least budget; the network is built and lowered here."""
    net = mx.models.get("lstm_unrolled", steps=steps, **form)
    asked = Asked(net.memory_plan(mx.cpu(), **mx.models.shapes_of("lstm_unrolled", 64, steps=steps)).problem)
    return asked.keep_all, asked.least()
