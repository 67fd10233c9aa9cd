"""The generic plugin: it runs any custom resource, described by a config of JSONPaths."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
