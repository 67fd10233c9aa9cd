"""What the platform sets for all plugins: the keys that Flyte's users know, below ``plugins.k8s``."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
