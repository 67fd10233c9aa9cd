"""The command ``task``: runs tasks, shows them, ends them; in a store of this machine, or at a server.

``command`` has the commands and their exit codes. ``running`` carries tasks out, in a store of this machine; ``remote``
asks a server (``serve --store``) instead. Both keep a mapping of items by uid, which ``showing`` prints: a live table
at a terminal, a line for each change in a log, neither with ``--json``. ``options`` is shared by these commands,
``serve`` and ``phase``: it loads no heavy module, since each of them imports it at its start.
"""
