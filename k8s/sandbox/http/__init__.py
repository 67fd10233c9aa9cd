"""The HTTP front: routing, request bodies, the forms of an answer, and the paths that are not resources."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
