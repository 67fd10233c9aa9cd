"""Merging changes into objects: patches of every type, server-side apply, managed fields."""
