"""Tasks: work to run, kept in a store, and the reconciler that carries it out through the plugin manager.

``model`` has the shapes of a task: people write ``spec``, the reconciler alone writes ``status``. ``reading`` makes a
task of a manifest, or says which field is wrong; a store takes it as a ``Wish``. ``documents`` turns a stored task into
the JSON that commands print and the status API answers.

``store`` is the interface of a store. ``sqlite`` is one: a file of tables (``tables``) with a thread of its own, read
and written by any number of processes. One of them is the manager (``managing``) as long as it has the lease; the
others watch, and take over when the lease lapses. ``cluster`` is another store: custom resources of an API server.

The manager runs a ``reconciler``. It takes in every unfinished task, and makes one step after the other of each
(``stepping``): a step does at most one thing in the cluster, through an executor (``executing``), and its result is
written before the next one. A task's step is due when a user writes a wish, when the cluster has news of its object,
when a task that it needs has progressed, and at the latest after half a minute. ``queue`` gives a task to one worker at
a time.

What is surprising: a status is written often, but not each time (``pause``), so the reconciler's own copy is newer than
the store's; an abort may end before its create is answered, so its object is looked for later; and a full disk stops
only the writes.

``figures`` makes the metrics of a reconciler. ``permitting`` says which rights the author of a task needs, and what
of it may change. ``logs`` reads what a task's pods have written; it needs no manager. The commands ``task`` and
``serve --store`` call this room.
"""
