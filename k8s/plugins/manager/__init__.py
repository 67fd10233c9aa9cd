"""The manager of Kubernetes objects: a task's object is built, created through the gate, followed, and ended.

``manager.PluginManager`` is asked by the reconciler of tasks, or by a program that embeds it, for one step at a time:
``handle``, ``abort``, ``sweep``, ``finalize``. Each is a function of the task and of what the last step returned
(``state``), which its caller stores. A step may be repeated, and taken by another process after a crash: the object's
name and the key of its create come from the task's uid and attempt. A step is quick and never waits for room; ``wake``
tells when the next one would find news.

*Before there is an object.* ``launching`` has all creates that are on their way, each a ``launch``: a create that waits
at the gate in a task of its own, however long that takes. If others will make pods of the object, it is a gang. What an
answer that ends it means for the task is a table (``outcomes``).

*Then.* ``checking`` finds the object, in the watch where that is fed, else at the server, and asks the plugin
(``plugin_calls``): what a plugin raises or wrongly returns is a failure with its name, and ends nothing else.

*The end.* ``ending`` aborts, and cleans up behind what has ended. A create that was sent and not answered may still be
stored after its task was aborted: such a state is in ``doubt``, and swept until nothing can come any more.

``objects`` has the single requests, ``figures`` the counters and the samples for metrics. Everything runs on the event
loop that entered the manager; only the samples are asked for by other threads.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
