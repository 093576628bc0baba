"""Find random networks in which a pass has something to do, for WITNESSES of the differential tests.

python scripts/find_witness.py join_reshapes            the first seeds of such networks, on either backend
python scripts/find_witness.py --all                    the first seed for every pass, as rows of the table
python scripts/find_witness.py NAME --seeds 2000        how many networks to look through
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mxlite.backends.gpu import planning_backend
from mxlite.executor.plan.lower import rewrites
from tests.differential import agreement
from tests.differential.draw import draw
from tests.differential.run import backends, HITS

MOST = 5  # seeds that are printed for one pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PASS")
    parser.add_argument("--all", action="store_true", help="every pass")
    parser.add_argument("--seeds", type=int, default=500, help="networks to look through (500)")
    asked = parser.parse_args()
    known = {"cpu": rewrites(backends()["cpu"]), "gpu passes": rewrites(planning_backend())}
    every = {name for names in known.values() for name in names}
    if unknown := sorted(set(asked.names) - every):
        parser.error(f"there is no pass {', '.join(unknown)}; there are {', '.join(sorted(every))}.")
    wanted = every if asked.all else set(asked.names)
    if not wanted:
        parser.error("name a pass, or --all.")
    most = 1 if asked.all else MOST
    found: dict[tuple[str, str], list[int]] = {
        (pipeline, name): [] for pipeline, names in known.items() for name in names if name in wanted
    }
    for seed in range(asked.seeds):
        HITS.changed.clear()
        case = draw(seed)
        agreement.judge(case.network, case.setting)
        for key, seeds in found.items():
            if HITS.changed[key] and len(seeds) < most:
                seeds.append(seed)
        if all(len(seeds) == most for seeds in found.values()):
            break
    for (pipeline, name), seeds in found.items():
        print(f"{pipeline:12} {name!r:30} {', '.join(map(str, seeds)) or f'none below {asked.seeds}'}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
