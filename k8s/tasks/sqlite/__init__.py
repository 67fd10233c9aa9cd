"""The store in a file of SQLite: any number of processes read it and write wishes, one manager writes status."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
