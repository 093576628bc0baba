"""What a module writes and reads."""
