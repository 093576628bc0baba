"""Offsets in one arena: live ranges, and where they lie."""
