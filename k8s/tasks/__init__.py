"""Tasks: what is to run, kept in a store, and the reconciler that carries it out through the plugin manager."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
