"""What would happen if a manifest were created now: the core of ``explain``. Pure: nothing is sent or reserved."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
