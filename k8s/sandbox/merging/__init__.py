"""Patches of every type, server-side apply, managed fields."""
