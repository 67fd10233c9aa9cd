"""The built-in plugins that are code: pods, Jobs, JobSets.

Each module ends with its entries, which ``registry.builtin_entries`` collects: a new plugin is a module here, and a
line there. An operator of custom resources needs no module: a file in ``kube/operators`` describes it to the generic
plugin.

What a controller writes into a status, and when, comes from its source; each module names the files. Two rules hold
everywhere. An unknown condition has no effect, since newer controllers have new ones. And a failed object whose pods
are still being ended counts as running: its room is not free yet.
"""
