"""Blocks: networks and their parts."""
