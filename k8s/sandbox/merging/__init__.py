"""Merging changes into objects: patches of every type, server-side apply, managed fields."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
