"""Defaults, validation and LimitRanges: what the server fills in, and what a write must pass before quota."""
