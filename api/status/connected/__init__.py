"""The gates that ``serve`` is connected to: found, asked, and what they tell as one."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
