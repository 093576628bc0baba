"""The order in which tasks run."""
