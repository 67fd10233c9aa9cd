"""How objects and kinds are shown to clients: Tables for ``kubectl get``, discovery, OpenAPI."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
