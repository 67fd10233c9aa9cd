"""Who learns of a create on its way: stories for Kubernetes events, log lines, an observer that counts."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
