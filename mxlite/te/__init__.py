"""Tensor expressions: what an operator computes, as values with shapes, steps and reductions over axes.

`computation` writes them down, `adjoint` derives gradients, `sweeps` and `evaluate` carry them out by numpy,
and `operator` makes kernels of it. `expression` holds those of one element. Backends generate code from them.
"""
