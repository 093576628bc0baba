"""Autograd: the tape, and how gradients are made of what it remembers."""
