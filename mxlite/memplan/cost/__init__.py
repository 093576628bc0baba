"""What a plan's step takes: rates of devices, caches, threads."""
