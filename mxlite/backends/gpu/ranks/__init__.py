"""GPUs of several ranks: how they are joined, and the messages between them."""
