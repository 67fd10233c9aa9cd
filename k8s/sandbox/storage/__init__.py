"""The object store: objects in memory, their history, identity and metadata rules, selectors, and definitions."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
