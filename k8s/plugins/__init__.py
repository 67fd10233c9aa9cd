"""Plugins: how a task becomes an object in the cluster, and what that object's status says of the task.

A plugin (``protocol``) builds an object from a task and reads the object's phase (``phases``). It is pure: no I/O, no
clock, plain Kubernetes JSON in and out. So ``backoff-ctrl phase`` tries it on any object, and its bugs stay its own.
All else is the business of a manager (``manager``): it names the object, creates it through the gate, follows it
(``following``), asks the plugin, and cleans up. Another manager can stand beside it with plugins of another kind: what
Kubernetes objects alone need is in ``manager`` and ``following``, and neither the registry nor a plugin imports them.

*Which plugin.* ``registry`` knows the built-in ones, those that the platform describes, and those of installed
packages. ``kinds`` has the built-in ones that are code. ``generic`` is one plugin for all operators of custom
resources: what it must know of one is an ``operator_config``, a page of YAML; those in ``operators`` ship.

*What the platform adds.* ``config`` has the keys and defaults of ``plugins.k8s`` and its neighbours, ``config_file``
reads them and follows their file. A plugin is given them with each task and each look, so that a change needs no
restart.

*Pods.* Nearly every plugin makes pods, itself or by way of an operator. ``pod_building`` builds them, with
``pod_placing`` for resources and nodes; ``pod_phases`` says what their status means, on ``statuses``, which reads
whatever stands there and never raises. Authors of plugins find all they need in ``backoff_ctrl.plugins``.

*Surprising.* A phase is news only with its version: the same phase and version is told once. Of an object's own pods
only those with its labels count; an image that can't be pulled shows only there. What marks an object as a task's is in
``marks``: its labels bound whatever is watched, and whatever is ever deleted.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
