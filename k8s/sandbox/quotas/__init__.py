"""Quota admission, its races, and the quota controller."""
