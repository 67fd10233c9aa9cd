"""The demo's workload with a fifth of its pods in gangs, which compute only once all of their members live."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
