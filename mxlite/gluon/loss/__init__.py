"""mx.gluon.loss: losses, one number a sample."""

from . import base
from .base import Loss as Loss
from .classification import (
    HingeLoss as HingeLoss,
    KLDivLoss as KLDivLoss,
    LogisticLoss as LogisticLoss,
    SigmoidBCELoss as SigmoidBCELoss,
    SigmoidBinaryCrossEntropyLoss as SigmoidBinaryCrossEntropyLoss,
    SoftmaxCELoss as SoftmaxCELoss,
    SoftmaxCrossEntropyLoss as SoftmaxCrossEntropyLoss,
    SquaredHingeLoss as SquaredHingeLoss,
)
from .distance import (
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    SDMLLoss as SDMLLoss,
    TripletLoss as TripletLoss,
)
from .regression import (
    HuberLoss as HuberLoss,
    L1Loss as L1Loss,
    L2Loss as L2Loss,
    PoissonNLLLoss as PoissonNLLLoss,
)
from .sequence import CTCLoss as CTCLoss

# Losses of users call these two by MXNet's names.
_apply_weighting = base.apply_weighting
_reshape_like = base.like
