"""The gate: the ledger that all creates of a process share, and the drivers that take creates through it."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
