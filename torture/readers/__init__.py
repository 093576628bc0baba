"""Corrupted files: how they are made, the readers they are given to, and limits of time and memory."""
