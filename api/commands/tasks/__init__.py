"""The command ``task``: runs tasks, shows them, ends them; here in a store, or at a server.

``command`` has the commands and their exit codes. ``running`` carries tasks out, in a store of this machine;
``remote`` asks a server (``serve --store``) instead. Both keep a mapping of items by uid, which ``showing`` prints: a
live table at a terminal, a line for each change in a log, nothing with ``--json``. ``options`` is what commands share,
also ``serve`` and ``phase``: it loads nothing heavy, as all options are made whenever the program starts.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
