"""Arrays in files."""
