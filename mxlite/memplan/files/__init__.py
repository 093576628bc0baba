"""Plans and what was found for them, on disk; plans brought to other problems."""
