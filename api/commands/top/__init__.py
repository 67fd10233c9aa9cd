"""``backoff-ctrl top``: a live picture of a running gate. The screen needs textual, which loads when it is shown."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
