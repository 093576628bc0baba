"""Convolutions of 3x3 by Winograd."""

from .layer import d_data as d_data, d_weight as d_weight, fits as fits, forward as forward
