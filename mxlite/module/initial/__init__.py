"""First values of parameters."""
