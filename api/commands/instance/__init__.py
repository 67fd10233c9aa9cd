"""How does a command ask a running gate? Through its status API, or that of ``serve``, over HTTP.

``client`` is the one client: it finds the address (``--server``, else the environment), asks, and reads JSON into the
shapes of ``k8s/status``; what goes wrong on the way ends the command with one sentence. ``options`` has the options of
all these commands, and the table and the document that they print. ``ceilings``, ``waiting`` and ``act`` are one
command each; ``top``, ``explain`` and ``task`` beside this room use the same client, and ``serve`` reads its gates'
answers with it.

A command has to start fast: nothing here loads an HTTP library, an event loop or the Kubernetes client. Code that asks
the cluster itself (``ceilings --kubeconfig``) is imported only when it is used.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
