"""Kernels of the GPU, run on the CPU."""
