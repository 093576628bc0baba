"""Files of a module."""
