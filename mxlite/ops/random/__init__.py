"""Random numbers from counters, their distributions and densities."""
