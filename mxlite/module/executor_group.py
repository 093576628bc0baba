"""`mx.module.executor_group`: what `module._exec_group` is an instance of.

MXNet's class binds an executor for each device; here a Module binds its one itself, and this shows it.
"""

from .bound_arrays import BoundArrays as DataParallelExecutorGroup

__all__ = ["DataParallelExecutorGroup"]
