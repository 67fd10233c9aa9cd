"""Several creates that are admitted as one: how they wait for room, and how their members are drawn then."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
