"""Files: written whole, kept for later processes, checked when they are read."""
