"""Steps of optimizers, and the decision to take or skip them."""
