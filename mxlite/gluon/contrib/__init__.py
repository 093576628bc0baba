"""mx.gluon.contrib: layers, cells, samplers and data sets that MXNet keeps apart, nn, rnn and data."""

from . import data as data, nn as nn, rnn as rnn
