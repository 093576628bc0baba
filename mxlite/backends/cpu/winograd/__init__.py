"""Winograd convolutions of 3x3."""

from .choose import d_data as d_data, d_weight as d_weight, forward as forward
from .layer import fits as fits
from .tiles import Prologue as Prologue
