"""Who holds a quota, and what would free it."""
