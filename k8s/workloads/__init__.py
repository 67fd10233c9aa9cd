"""What others create. ``admitting`` lets suspended Jobs, and other kinds that can be suspended, begin when they fit."""
