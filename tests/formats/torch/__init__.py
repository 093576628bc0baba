"""Modules of PyTorch, imported.

modules/   the networks, by family, small and written for these tests; each gives (module, inputs)
peer.py    a module's outputs and gradients beside those of the network imported from it
"""
