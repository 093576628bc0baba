"""Kernels of the GPU become machine code; wants NVIDIA's compiler and no GPU."""
