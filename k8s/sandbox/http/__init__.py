"""The HTTP side: bodies, verbs by path, the forms of an answer, tables, discovery and OpenAPI."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
