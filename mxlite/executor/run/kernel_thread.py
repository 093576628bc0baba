"""Thread on which kernels are run, and their number of threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from ...engine import get_engine, Var
from ..plan.lower import Lowered


def where_kernels_run(lowered: Lowered, run: Callable[[], None]) -> None:
    """Call `run()` with the threads of these kernels, on the thread that will run them, if there is one.

    A thread that has run a parallel kernel keeps a team of OpenMP threads for ever, and with a second team
    the program's own would fall asleep at every barrier (see `engine/threaded.py`).
    """

    def there() -> None:
        threads = lowered.backend.running(lowered.threads) if lowered.tuned else nullcontext()
        with threads, np.errstate(all="ignore"):  # arbitrary values; and each thread has a state of its own
            run()

    if lowered.kind != "team":
        there()
        return
    failed: list[BaseException] = []

    def kept() -> None:
        try:
            there()
        except BaseException as error:  # an error for the caller, not one of the engine's operations
            failed.append(error)

    done, engine = Var("timings"), get_engine()
    engine.push(kept, (), (done,), name="timing kernels", kind="team")
    engine.wait_for(done)
    if failed:
        raise failed[0]
