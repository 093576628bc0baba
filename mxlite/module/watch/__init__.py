"""Observers of training: callbacks, monitors, progress."""
