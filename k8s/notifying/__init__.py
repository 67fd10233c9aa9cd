"""Webhook notifications: who wants to be told of creates that wait or fail, and how they are told."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
