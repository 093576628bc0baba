"""Loop nests: the loops of a computation, which a backend turns into code."""
