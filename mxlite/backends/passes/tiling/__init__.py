"""Tile fusion: a producer runs block by block inside its consumer."""
