"""Checks that somebody switches on: rewrites of graphs prove themselves, buffers have guard bytes."""
