"""Image cores: from pictures to flat features. Importing the package registers the built-in ones."""

from seqrl.models.image_cores.base import ConvolutionalCore, ImageCore, Window, build_image_core, smallest_input
from seqrl.models.image_cores.convolutions import DrQCore, GridworldCore, ImpalaCore, NatureCore
from seqrl.models.image_cores.local_weights import skip_local_weights
from seqrl.models.image_cores.resnet import ResNet18Core, ResNet50Core

__all__ = [
    "ConvolutionalCore",
    "DrQCore",
    "GridworldCore",
    "ImageCore",
    "ImpalaCore",
    "NatureCore",
    "ResNet18Core",
    "ResNet50Core",
    "Window",
    "build_image_core",
    "skip_local_weights",
    "smallest_input",
]
