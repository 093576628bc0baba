"""Cost models of a plan's step: device rates, caches, threads."""
