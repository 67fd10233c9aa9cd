"""ResourceQuota: what objects are charged, quota admission with its races, and the quota controller."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
