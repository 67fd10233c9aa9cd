"""Following the objects of tasks: one watch per kind, their pods and events, and how many there are."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
