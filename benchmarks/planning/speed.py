"""Planning time against size."""

from __future__ import annotations

from time import process_time

from harness import markdown
from networks.feature_maps import memonger_resnet

from mxlite.memplan import plan_memory, search
from planning.report import Report, say

ABOUT = """\
memonger's ResNets of growing depth, feature maps only; seconds of one core for one budget of half and one of
15 % of keep-all's arena, nothing remembered from before.

"""
STAGES = {
    (1, 2, 2, 1): None,
    (3, 24, 36, 3): 1.0,
    (15, 120, 180, 15): 10.0,
    (70, 560, 840, 70): 60.0,
}
"""With the seconds allowed."""


def measure(report: Report, quick: bool) -> None:
    title = "Planning time"
    rows: list[list[object]] = []
    for stages, limit in list(STAGES.items())[: 2 if quick else None]:
        say(f"planning time: {stages}")
        problem = memonger_resnet(stages)
        spent = []
        keep_all = plan_memory(problem).arena_bytes
        for share in (0.5, 0.15):
            search._plans.clear()
            search._frontiers.clear()
            began = process_time()
            try:
                plan_memory(problem, int(share * keep_all))
            except Exception as error:
                say(f"  {share}: {error}")
            spent.append(process_time() - began)
        tasks = len(problem.tasks)
        per = f"{1e6 * max(spent) / tasks:.0f}"
        rows.append([str(list(stages)), tasks, *(f"{s:.2f}" for s in spent), per])
        report.put(title, ABOUT + markdown(["stages", "tasks", ".50 s", ".15 s", "us a task"], rows))
        if limit is not None:
            name = f"planning {tasks} tasks, s of one core"
            report.target(name, f"below {limit:g}", f"{max(spent):.2f}", max(spent) < limit)
