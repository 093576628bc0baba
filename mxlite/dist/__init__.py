"""`mx.dist`: this process as a rank of a job, and arrays that all ranks exchange.

    mx.dist.init()                                  once, in a program that mpiexec or mxlite.launch has started
    mx.dist.rank(), mx.dist.size(), mx.dist.local_rank()
    mx.dist.broadcast_parameters(params)            all ranks begin with those of rank 0
    mx.dist.allreduce(array)                        the mean of all ranks' arrays

Names are those of Horovod's module for MXNet. `Module.fit(kvstore="dist_sync")` does all of it by itself, and
sums gradients inside the planned step.
"""

from .compression import TwoBit as TwoBit
from .device_sums import add_devices as add_devices
from .exchange import (
    allreduce as allreduce,
    barrier as barrier,
    broadcast as broadcast,
    broadcast_parameters as broadcast_parameters,
)
from .job import (
    agree as agree,
    init as init,
    is_initialized as is_initialized,
    local_rank as local_rank,
    rank as rank,
    size as size,
)
from .sums import Sums as Sums
