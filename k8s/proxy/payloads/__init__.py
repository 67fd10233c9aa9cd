"""Payloads: a body stays the bytes of its creator; what it says is read beside it, and a mark changes only metadata."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
