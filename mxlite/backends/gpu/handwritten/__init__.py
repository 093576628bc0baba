"""Kernels of our own: how they are launched, and the CUDA text that is written for them."""
