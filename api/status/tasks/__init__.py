"""Tasks over HTTP: ``serve --store`` is their manager; who may create a kind may have it created."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
