"""Tensor expressions: what an operator computes, as values with shapes, steps and reductions over axes.

`computation` writes them down, `adjoint` derives gradients, `evaluate` says what they mean; `expression`
holds those of one element. Backends generate code from them.
"""
