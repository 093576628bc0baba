"""Rematerialization: which tasks are recomputed, and which values go to host memory, for every budget."""
