"""The way to the API server: where it is, TLS and its rotation, kept connections, whole requests."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
