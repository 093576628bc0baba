"""Steps of optimizers, and what decides whether they are taken."""
