"""mx.dynamic: recorded graphs of samples, in batches, inside a budget."""
