"""mx.gluon.contrib: layers, samplers and data sets that MXNet keeps apart, nn and data of them."""

from . import data as data, nn as nn
