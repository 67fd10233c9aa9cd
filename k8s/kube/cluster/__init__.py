"""The way to an API server: where it is, with whose credentials, and what is asked of it.

``finding`` says where: ``find_place`` reads a kubeconfig, or the account of the pod that this runs in, by the official
client, which is loaded only then (0.45 s, 35 MB). What a configuration of any client says of TLS, proxies and
credentials is read there too. The sidecar reads a place by itself (``sidecar/finding``): docs/decisions/clients.md.
``kubeconfig`` says what is wrong with a kubeconfig, and ``recognizing`` whether a server is an API server, for both.

``kube/paths`` makes every path of an object: its words may be a tenant's, and lead elsewhere. ``objects`` reads,
creates and deletes single objects, ``kinds`` names their kinds, ``election`` holds a Lease, ``address`` splits host and
port, ``misspelt`` finds the field that a misspelt key meant.

There are two ways to ask, for two kinds of callers.

- ``ClusterSession`` (``session``), on an event loop: watches, Kubernetes events, tasks' objects, the webhook. Each
  request carries the credentials of that moment, so a token that was renewed counts from the next request on. It
  never retries by itself: a watch lists again, a create is looked up, the operator writes again in its next round.
- ``Reach`` (``asking``), for commands and threads: one question, one answer within a minute, and for every error a
  sentence that says what to do. It uses the official client's own connections, and with them SOCKS proxies, which
  kubectl's users have and aiohttp does not know.

``rights`` lists by mode what an account must be allowed, and what is lost without it; ``doctor``, gateways, the webhook
and ``serve`` ask the server for these. ``subjects`` asks what another account may do, for ``serve`` and the webhook of
Tasks.
"""
