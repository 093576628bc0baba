"""Rematerialization: results that are recomputed in the backward pass, or kept in a smaller form."""
