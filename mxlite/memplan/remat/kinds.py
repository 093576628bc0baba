"""Kinds of a schedule's steps."""

RUN, STORE, FETCH = 0, 1, 2
"""Kinds of steps: a kernel call; a copy to host memory; a copy back."""
