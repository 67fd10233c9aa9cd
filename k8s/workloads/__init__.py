"""Objects of other creators: ``admitting`` lets suspended Jobs and other suspended kinds begin once they fit."""
