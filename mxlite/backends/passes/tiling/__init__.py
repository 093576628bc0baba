"""Tile fusion: passes whose operators run on a tile of their arrays at a time."""
