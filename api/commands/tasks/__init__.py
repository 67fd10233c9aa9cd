"""The command ``task``: runs tasks, shows them, ends them; here in a store, or at a server."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
