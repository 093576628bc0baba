"""Elements and rows by index: look-ups, scatters, sorts, sequences."""
