"""Elements and rows by number: look-ups, places, orders, sequences."""
