"""Plugins: how a task becomes an object in the cluster, and what that object's status says of the task.

A plugin (``protocol``) builds an object from a task and reads the object's phase (``phases``, which lists those that
plugins may report, and those that are a manager's). It is pure: no I/O, no clock, plain Kubernetes JSON in and out.
So ``backoff-ctrl phase`` can try it on any object, and its bugs stay its own. A manager (``manager``) does the rest:
it names the object, creates it through the gate, follows it (``following``), asks the plugin, and cleans up. Code
that only Kubernetes objects need is in ``manager`` and ``following``; neither the registry nor a plugin imports them:
``services/webapi`` is a second manager, for plugins of another kind (``web_protocol``). Both take a step in the same
way, which ``reported`` has.

*Which plugin.* ``registry`` has the built-in plugins, those that the platform describes, and those of installed
packages. ``kinds`` has the built-in ones that are code. ``generic`` is one plugin for all operators of custom
resources; a description, a page of YAML in ``kube/operators``, covers one operator. ``services/rest`` is the
same for services with a REST API. ``meanings`` says what a state means for a task, for both.

*What the platform adds.* ``config`` has the keys and defaults of ``plugins.k8s`` and its neighbours, ``config_file``
reads them and follows their file; ``kube/operators/wrong_values`` says what is wrong with one. Each call of a plugin
passes the present ones, so that a change needs no restart.

*Pods.* Nearly every plugin makes pods, itself or by way of an operator. ``pod_building`` builds them, with
``pod_placing`` for resources and nodes; ``field_names`` finds misspelt names in what a task says of them;
``pod_phases`` says what their status means, by ``kube/answers/statuses``, which reads any status and never raises.
Authors of plugins find all they need in ``backoff_ctrl.plugins``.

*Surprising.* A phase is news only with its version: the same phase and version is reported once. Only pods with an
object's labels count as its own; only they show that an image can't be pulled. ``marks`` has the labels that mark an
object as a task's: they bound what is watched, and what is ever deleted.
"""
