"""Machine code for this processor: compiled, kept, loaded."""
