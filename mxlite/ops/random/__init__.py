"""Random numbers from counters, and their distributions and densities."""
