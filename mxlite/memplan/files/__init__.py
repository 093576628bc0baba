"""Plans and search results on disk, and plans transferred to other problems."""
