"""The built-in plugins that are code: pods, Jobs, JobSets.

Each module ends with its entries, which ``registry.builtin_entries`` collects: a new plugin is a module here, and a
line there. An operator of custom resources needs none: a file in ``operators`` describes it to the generic plugin.

What a controller writes into a status, and when, was read in its source; each module names the files. Two surprises
are the same everywhere. A condition that is not known changes nothing: newer controllers have new ones. And an object
that has failed, but still holds the room of pods that are being ended, runs: its room is not free yet.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
