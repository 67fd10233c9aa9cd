"""The manager of Kubernetes objects: a task's object is built, created through the gate, followed, and ended.

The reconciler of tasks, or a program that embeds it, calls ``manager.PluginManager`` for one step at a time:
``handle``, ``abort``, ``sweep``, ``finalize``. Each is a function of the task and of what the last step returned
(``state``), which its caller stores. A step may be repeated, and after a crash another process may take it: the
object's name and the key of its create come from the task's uid and attempt. A step is quick and never waits for room;
``wake`` is called when the next one would find news.

*Before there is an object.* ``launching`` has all creates that are under way, each a ``launch``: a create that waits at
the gate in an asyncio task of its own, however long that takes. If a controller will make pods of the object, it is a
gang. A table (``outcomes``) says what the final answer means for the task.

*While it lives.* ``checking`` finds the object, in the watch's cache if that is complete, else at the server, and asks
the plugin (``plugin_calls``): an exception or a wrong result is a failure with the plugin's name, and ends nothing
else.

*The end.* ``ending`` aborts, and cleans up behind what has ended. A create that was sent and not answered may still be
stored after its task was aborted: such a state is in ``doubt``, and swept until nothing can appear any more.

``objects`` has the single requests, ``figures`` the counters and the samples for metrics. Everything runs on the event
loop that entered the manager; other threads may only ask for the samples.
"""
