"""A fake kubelet that runs and finishes pods: an API client, which works on real servers too."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
