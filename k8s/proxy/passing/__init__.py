"""A creator's connection: requests pass to the API server as they come, answers and tunnels back."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
