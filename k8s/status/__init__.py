"""The status of a gate: its documents as JSON, its metrics, and a small HTTP server for both."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
