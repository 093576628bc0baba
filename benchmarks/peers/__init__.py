"""Worker processes that each hold one network in one framework and train it on request; see peer.py."""
