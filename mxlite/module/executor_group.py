"""`mx.module.executor_group`: the class of `module._exec_group`.

MXNet's class binds an executor for each device; here a Module binds its one itself, and this gives access to
it.
"""

from .bound_arrays import BoundArrays as DataParallelExecutorGroup

__all__ = ["DataParallelExecutorGroup"]
