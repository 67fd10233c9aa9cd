"""Find out who holds a quota, and what would free it."""
