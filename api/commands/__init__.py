"""The commands of ``backoff-ctrl``, one module with a click command named ``command`` for each.

Some need no cluster: ``classify`` explains an answer of the API server, ``footprint`` shows what a manifest is charged,
``phase`` how a plugin reads an object. ``doctor`` and ``holders`` (with ``holders_page`` for its output) ask the
cluster. ``ceilings``, ``waiting``, ``top`` (``top_look`` for the data, ``top_screen`` for the screen), ``explain`` and
``act`` ask a running gate, or ``serve``, through the one client in ``k8s/status/client``; ``instance_options`` has
their options and their tables. ``proxy``, ``sandbox``, ``inject`` and ``serve`` run until they are stopped; what the
last two run is in ``api/webhooks`` and ``api/status``. ``jobs`` lists Jobs that wait, ``tasks`` is the command ``task``
with its subcommands, ``demo`` the comparison.

``options`` has the options that several commands share, ``bounded_log`` what the long-running ones log with.
``k8s/status/amounts`` formats quantities, durations and tables. ``cluster_ceilings`` reads ceilings from the cluster
for ``ceilings --kubeconfig``.

``api.main`` lists all commands by name, and imports one only when it is called, so a command starts fast: modules here
import heavy libraries inside the function that needs them. A command ends with the exit codes of ``api.exits``: errors
that a user can correct are ``BadInput`` or ``Failed``, printed as one line. With ``--json`` stdout has one JSON
document only.
"""
