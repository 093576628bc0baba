"""mx.gluon.model_zoo.vision: networks for images, with MXNet's names of parameters. `mx.models` has more as
symbols.
"""

from typing import Any

from ....core.errors import nearest, UnknownNameError
from .alexnet import AlexNet as AlexNet, alexnet as alexnet
from .densenet import (
    DenseNet as DenseNet,
    densenet121 as densenet121,
    densenet161 as densenet161,
    densenet169 as densenet169,
    densenet201 as densenet201,
    get_densenet as get_densenet,
)
from .inception import Inception3 as Inception3, inception_v3 as inception_v3
from .mobilenet import (
    get_mobilenet as get_mobilenet,
    MobileNet as MobileNet,
    mobilenet0_5 as mobilenet0_5,
    mobilenet0_25 as mobilenet0_25,
    mobilenet0_75 as mobilenet0_75,
    mobilenet1_0 as mobilenet1_0,
)
from .mobilenet_v2 import (
    get_mobilenet_v2 as get_mobilenet_v2,
    mobilenet_v2_0_5 as mobilenet_v2_0_5,
    mobilenet_v2_0_25 as mobilenet_v2_0_25,
    mobilenet_v2_0_75 as mobilenet_v2_0_75,
    mobilenet_v2_1_0 as mobilenet_v2_1_0,
    MobileNetV2 as MobileNetV2,
)
from .resnet import (
    BasicBlockV1 as BasicBlockV1,
    BasicBlockV2 as BasicBlockV2,
    BottleneckV1 as BottleneckV1,
    BottleneckV2 as BottleneckV2,
    get_resnet as get_resnet,
    resnet18_v1 as resnet18_v1,
    resnet18_v2 as resnet18_v2,
    resnet34_v1 as resnet34_v1,
    resnet34_v2 as resnet34_v2,
    resnet50_v1 as resnet50_v1,
    resnet50_v2 as resnet50_v2,
    resnet101_v1 as resnet101_v1,
    resnet101_v2 as resnet101_v2,
    resnet152_v1 as resnet152_v1,
    resnet152_v2 as resnet152_v2,
    ResNetV1 as ResNetV1,
    ResNetV2 as ResNetV2,
)
from .squeezenet import (
    get_squeezenet as get_squeezenet,
    SqueezeNet as SqueezeNet,
    squeezenet1_0 as squeezenet1_0,
    squeezenet1_1 as squeezenet1_1,
)
from .vgg import (
    get_vgg as get_vgg,
    VGG as VGG,
    vgg11 as vgg11,
    vgg11_bn as vgg11_bn,
    vgg13 as vgg13,
    vgg13_bn as vgg13_bn,
    vgg16 as vgg16,
    vgg16_bn as vgg16_bn,
    vgg19 as vgg19,
    vgg19_bn as vgg19_bn,
)

_MODELS = {
    f.__name__: f
    for f in (
        alexnet, densenet121, densenet161, densenet169, densenet201,
        resnet18_v1, resnet34_v1, resnet50_v1, resnet101_v1, resnet152_v1,
        resnet18_v2, resnet34_v2, resnet50_v2, resnet101_v2, resnet152_v2,
        vgg11, vgg13, vgg16, vgg19, vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn,
    )
} | {
    "inceptionv3": inception_v3,
    "mobilenet0.25": mobilenet0_25, "mobilenet0.5": mobilenet0_5,
    "mobilenet0.75": mobilenet0_75, "mobilenet1.0": mobilenet1_0,
    "mobilenetv2_0.25": mobilenet_v2_0_25, "mobilenetv2_0.5": mobilenet_v2_0_5,
    "mobilenetv2_0.75": mobilenet_v2_0_75, "mobilenetv2_1.0": mobilenet_v2_1_0,
    "squeezenet1.0": squeezenet1_0, "squeezenet1.1": squeezenet1_1,
}  # fmt: skip


def get_model(name: str, **kwargs: Any) -> Any:
    """A network by name, as `get_model("resnet18_v1", classes=10)`.

    kwargs: classes, pretrained, ctx, root, thumbnail (of ResNets, for small images).
    """
    found = _MODELS.get(name.lower())
    if found is None:
        raise UnknownNameError(
            f"The zoo has no network {name!r}.{nearest(name, _MODELS)} It has {', '.join(_MODELS)}."
        )
    return found(**kwargs)
