"""The plugin manager: a task type resolves to a plugin, whose object is created through the gate and followed."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
