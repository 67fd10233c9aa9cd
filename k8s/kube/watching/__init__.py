"""Watching: how the ledger learns of room that comes free, without asking.

Nothing is watched before a create has to wait for a quota. Then ``HostedWatch`` (``hosted``) loads the rest of this
room, and starts a ``QuotaWatch`` (``quotas``) on the runtime; it ends with the last client. ``serve`` starts one for
all namespaces at once.

What is watched, and where. In each namespace in use: its ResourceQuotas, and the ends of its pods, as metadata only.
Together for all namespaces where that is asked for and allowed, else one by one (256 at most; the least recently used
is dropped). ClusterResourceQuotas, where the server has that API group. While there are gangs whose pods others make:
the pods with the gang's label and, if an operator does not pass the label on, the metadata of all pods, whose owners
are followed up to what the gang created (``gangs``).

How (``informer``, one for each kind and place). It reads the whole list first, from etcd, in pages: only a list proves
that no change was missed. Then it watches from the list's version, about five minutes at a time. It resumes a stream
that the server ends from the last version seen; bookmarks keep that fresh. Each line is checked (``objects``): one that
is not JSON, late, repeated, or of another namespace is counted and skipped, and never ends a watch. While nobody waits,
events are read in batches, and of consecutive states of one quota only the last counts.

What goes wrong:

- 410, or an ERROR event: the version is too old to resume from. List again.
- A broken connection, a 5xx, a stream that is silent for 150 s or ends within a second: list again after a jittered
  pause of at most 0.1 s that doubles up to 30 s; a ``Retry-After`` counts. Meanwhile the ledger knows that it may miss
  changes (``watch_lost``) and relies on timers.
- 403 or 404: asked again after 1 s, 4 s, ... up to 5 min, since a server that starts refuses everything. From the
  second refusal on, the quotas that were known are dropped and refusals teach the ledger instead. Where quotas may not
  be watched, an end of a pod is a hint that sends a probe (``hint_release``).
- An object beyond the bounds of ``answers/bounded_json`` is passed on without what is too deep in it; its record names
  it until it is whole or gone. A page that is too large is asked for with fewer objects.
- An error of ours is counted, logged, and treated as a broken connection: no watch ends another.

How it reaches the ledger (the observers in ``quotas``): ``observe_quota`` for each state of a quota, ``forget_quota``
for those that a list no longer has, ``watching`` once a list is complete, ``ended`` for each pod that finished or was
deleted, ``member_seen`` for each pod of a gang. All in the event loop of the watch; the ledger is safe from any thread.

``WatchRecord`` (``status``) says for each namespace whether quotas are watched, or only pods, or nothing, since when
and why, and counts lists, reconnects and what was ignored. Pages, metrics and log lines come from it; the loss of a
watch is logged only once it has lasted five seconds.

The plugin manager uses the same informer for its objects, with observers of its own (``plugins/following``).
"""
