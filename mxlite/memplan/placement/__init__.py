"""Live ranges, and their offsets in one arena."""
