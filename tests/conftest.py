"""What tests have counted, at the end of the run.

A test says `record_property("count: SUBJECT", {"passed": 3, ...})`; the counts of a subject are added up over
all tests and test processes, and printed as one line.
"""

import os
from collections import Counter

os.environ["MXLITE_PLAN_CACHE"] = "0"  # tests are about planning; tests/test_plan_cache.py switches it on

PREFIX = "count: "


def pytest_terminal_summary(terminalreporter):
    totals: dict[str, Counter] = {}
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name.startswith(PREFIX) and getattr(report, "when", "") == "call":
                    totals.setdefault(name.removeprefix(PREFIX), Counter()).update(value)
    for subject, counts in sorted(totals.items()):
        parts = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
        terminalreporter.write_line(f"{subject}: {parts}, of {sum(counts.values()):,}")
