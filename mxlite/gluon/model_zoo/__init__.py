"""mx.gluon.model_zoo: well-known networks."""

from . import vision as vision
from .vision import get_model as get_model
