"""Small networks of the families people bring: name -> a function that gives (module, inputs)."""

from . import attention, dense, language, losses, operators, sequence, video, vision

FILES = (attention, dense, language, losses, operators, sequence, video, vision)
NETWORKS = {
    f"{file.__name__.rpartition('.')[2]}-{name}": make
    for file in FILES
    for name, make in file.NETWORKS.items()
}

FAMILIES = {
    "vision": "alexnet vgg resnet resnext squeezenet densenet googlenet inception mobilenet2 mobilenet3 "
    "mnasnet efficientnet efficientnet2 shufflenet regnet convnext",
    "attention": "vit swin swin2 maxvit mixer translator perceiver clip",
    "dense": "segmenter deeplab retinanet raft super-resolution unet",
    "video": "conv3d r2plus1d",
    "language": "gpt bert llama t5 experts",
    "sequence": "lstm gru wavenet temporal pointnet dlrm graph autoencoder",
}
LIST = [f"{file}-{name}" for file, names in FAMILIES.items() for name in names.split()]
"""The families by which the importer is judged: each is one of NETWORKS. The others hold single operators,
losses, and other ways of writing the same."""
