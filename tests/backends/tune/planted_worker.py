"""A worker some of whose schedules crash, hang, or compute something else."""

import os
import sys
import time

import numpy as np

from mxlite.backends.tune import worker


class Planted(worker.Bench):
    def kernel(self, schedule):
        if schedule.kernel == "crash":
            os.abort()
        return super().kernel(self.space.default if schedule.kernel in ("hang", "nan", "off") else schedule)

    def time(self, schedule):
        if schedule.kernel == "hang":
            time.sleep(1000)
        self._planted = schedule.kernel
        return super().time(schedule)

    def _check(self, found):
        array = found[-1]
        if self._planted == "nan":
            array.flat[0] = np.nan
        elif self._planted == "off":
            array += 0.1 * np.abs(array).max()
        super()._check(found)


if __name__ == "__main__":
    worker.Bench = Planted
    worker.main(int(sys.argv[1]), [int(c) for c in sys.argv[2].split(",") if c])
