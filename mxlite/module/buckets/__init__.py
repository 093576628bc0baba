"""Modules of networks that are unrolled to several lengths."""
