"""The cluster's page: ``backoff-ctrl serve``. Status API, live page and metrics on one port."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
