"""Controllers beside the quota controller: garbage collection and the deletion of namespaces."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
