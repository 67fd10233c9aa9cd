"""Read what an API server's answer means: its lane and, for a quota rejection, the amounts. Pure; loads no client."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
