from .kernels import CPU as CPU
