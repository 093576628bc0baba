"""Rematerialization: which tasks run again, and which values go to host memory, for every budget."""
