"""The plugins that ship with it: a module each, which ends with its ``PluginEntry``."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
