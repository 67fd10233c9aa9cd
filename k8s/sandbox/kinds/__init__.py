"""The kinds that are served, their schemas and protobuf form, and the API server's error answers."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
