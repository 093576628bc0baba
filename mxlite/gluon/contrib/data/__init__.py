"""mx.gluon.contrib.data: a sampler for texts that go on from batch to batch, and texts."""

from . import text as text
from .sampler import IntervalSampler as IntervalSampler
