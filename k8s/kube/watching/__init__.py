"""How is any kind listed and watched, and what is kept of it?

``informer`` does so, one for each kind and place. It reads the whole list first, from etcd, in pages: only a list
proves that no change was missed. Then it watches from the list's version, about five minutes at a time. It resumes a
stream that the server ends from the last version seen; bookmarks keep that fresh. Each line is checked (``objects``):
one that is not JSON, late, repeated, or of another namespace is counted and skipped, and never ends a watch. While
no create waits, events are read in batches, and of consecutive states of one quota only the last counts.

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

``WatchRecord`` (``status``) says for each namespace whether quotas are watched, or only pods, or neither, since when
and why, and counts lists, reconnects and what was ignored. Pages, metrics and log lines come from it; the loss of a
watch is logged only once it has lasted five seconds.

``gate/observing`` follows quotas and pods with it, ``tasks/plugins/following`` the objects of tasks,
``workloads/admitting`` Jobs.

``cache`` keeps what a watch reports of objects that users may make as large as they like; ``shares`` bounds that by
namespace.
"""
