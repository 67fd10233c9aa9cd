"""How does the ledger learn of room that comes free, without asking?

Quotas are watched from the first create on that has to wait for one. Then ``HostedWatch`` (``hosted``) loads the rest
of this room, and starts a ``QuotaWatch`` (``quotas``) on the runtime; it ends with the last client. ``serve`` starts
one for all namespaces at once. How a kind is listed and watched is in ``kube/watching``.

What is watched, and where. In each namespace in use: its ResourceQuotas, and the ends of its pods, as metadata only.
Together for all namespaces where that is asked for and allowed, else one by one (256 at most; the least recently used
is dropped). ClusterResourceQuotas, where the server has that API group. While there are gangs whose pods others make:
the pods with the gang's label and, if an operator does not pass the label on, the metadata of all pods, whose owners
are followed up to what the gang created (``gangs``).

How it reaches the ledger: ``observe_quota`` for each state of a quota, ``forget_quota`` for those that a list no longer
has, ``watching`` once a list is complete, ``ended`` for each pod that finished or was deleted, ``member_seen`` for each
pod of a gang. All in the event loop of the watch; the ledger is safe from any thread.
"""
