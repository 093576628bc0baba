"""A test that deadlocks fails, with the stack of every thread, instead of hanging."""

from __future__ import annotations

import faulthandler
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any


def in_time(seconds: float = 30.0) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Decorate a test: it runs on a thread of its own and has `seconds`."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(test)
        def watched(*args: Any, **kwargs: Any) -> None:
            raised: list[BaseException] = []

            def run() -> None:
                try:
                    test(*args, **kwargs)
                except BaseException as error:
                    raised.append(error)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(seconds)
            if thread.is_alive():
                faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
                raise TimeoutError(
                    f"{test.__name__} was not over after {seconds} s; see the stacks on stderr."
                )
            if raised:
                raise raised[0]

        return watched

    return decorate
