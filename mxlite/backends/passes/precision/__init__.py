"""Inlined casts: kernels read float32 or 16-bit arrays as they are, so that no copy is made."""
