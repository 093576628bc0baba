"""Module: training, scoring and predicting, with optimizers, metrics and initial values."""

from .base_module import BaseModule as BaseModule
from .bucketing_module import BucketingModule as BucketingModule
from .feedforward import FeedForward as FeedForward
from .initial.initializer import InitDesc as InitDesc, Initializer as Initializer
from .kvstore import KVStore as KVStore
from .metrics.metric import EvalMetric as EvalMetric
from .module import Module as Module
from .optim.lr_scheduler import (
    CosineScheduler as CosineScheduler,
    FactorScheduler as FactorScheduler,
    LRScheduler as LRScheduler,
    MultiFactorScheduler as MultiFactorScheduler,
    PolyScheduler as PolyScheduler,
)
from .optim.optimizer import Optimizer as Optimizer
from .optim.updater import get_updater as get_updater, Updater as Updater
from .python_module import PythonLossModule as PythonLossModule, PythonModule as PythonModule
from .saved.checkpoint import save_checkpoint as save_checkpoint
from .saved.statefile import pack_state as pack_state, unpack_state as unpack_state
from .sequential_module import SequentialModule as SequentialModule
from .watch.callback import (
    BatchEndParam as BatchEndParam,
    do_checkpoint as do_checkpoint,
    log_train_metric as log_train_metric,
    LogValidationMetricsCallback as LogValidationMetricsCallback,
    module_checkpoint as module_checkpoint,
    ProgressBar as ProgressBar,
    Speedometer as Speedometer,
)
from .watch.monitor import Monitor as Monitor
from .watch.progress import TqdmProgress as TqdmProgress
