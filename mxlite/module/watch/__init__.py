"""What looks on while a module trains: callbacks, monitors, progress."""
