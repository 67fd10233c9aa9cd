"""Validation, defaults, limit ranges: what a create must pass before quota."""
