"""`mx.models`: well-known networks as symbols, for examples, benchmarks and `zoo:` on the command line."""

from .catalog import (
    about as about,
    get as get,
    list_models as list_models,
    Model as Model,
    parameters_of as parameters_of,
    shapes_of as shapes_of,
)
from .densenet import densenet as densenet
from .inception import inception_bn as inception_bn
from .lstm import lstm as lstm, lstm_unrolled as lstm_unrolled
from .mobilenet import mobilenet as mobilenet
from .resnet import resnet as resnet, resnet_cifar as resnet_cifar
from .small import lenet as lenet, mlp as mlp
from .transformer import (
    transformer as transformer,
    transformer_decoder as transformer_decoder,
    transformer_encoder as transformer_encoder,
)
from .unet import unet as unet
from .vgg import vgg as vgg
