"""Planning time against graph size."""

from __future__ import annotations

from time import process_time

from harness import markdown
from networks.feature_maps import memonger_resnet

from mxlite.memplan import plan_memory
from mxlite.memplan.remat.frontier import frontier
from planning.report import Report, say

ABOUT = """\
memonger's ResNets of growing depth, feature maps only; seconds of one core. "All budgets": every candidate
plan, searched for once and remembered; nothing is read from a cache here. Then one budget, placed: of half of
keep-all's arena, and of 15 %.

"""
STAGES = {
    (1, 2, 2, 1): None,
    (3, 4, 6, 3): 1.0,
    (3, 24, 36, 3): None,
    (15, 120, 180, 15): 10.0,
    (70, 560, 840, 70): 60.0,
}
"""Stages, and seconds allowed for a budget, the search included."""


def measure(report: Report, quick: bool) -> None:
    title = "Planning time"
    rows: list[list[object]] = []
    for stages, limit in list(STAGES.items())[: 2 if quick else None]:
        say(f"planning time: {stages}")
        problem = memonger_resnet(stages)
        keep_all = plan_memory(problem).arena_bytes
        began = process_time()
        found = frontier(problem)
        spent = [process_time() - began]
        for share in (0.5, 0.15):
            began = process_time()
            found.at(int(share * keep_all))
            spent.append(process_time() - began)
        tasks, most = len(problem.tasks), spent[0] + max(spent[1:])
        cells = [f"{s:.2f}" for s in spent]
        rows.append([str(list(stages)), tasks, len(found.points), *cells, f"{1e6 * most / tasks:.0f}"])
        head = ["stages", "tasks", "plans", "all budgets s", ".50 s", ".15 s", "us a task"]
        report.put(title, ABOUT + markdown(head, rows))
        if limit is not None:
            name = f"planning {tasks} tasks, s of one core"
            report.target(name, f"below {limit:g}", f"{most:.2f}", most < limit)
