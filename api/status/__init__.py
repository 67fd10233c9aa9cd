"""``backoff-ctrl serve``: the cluster's status API, its live page and its metrics, on one port.

*What it knows.* ``observing`` watches the quotas of the cluster. ``gates`` asks the gates, those given by option and
those that ``gates_found`` finds in pods, keeps the last answer of each, and makes one stream of their decisions;
``unwatched`` adds ceilings that only a gate knows. ``overview`` and ``history`` summarise it for people.

*What it answers.* The table of URLs is ``k8s/status/endpoints``, the same that a gate serves. ``routing`` makes
routes of FastAPI from its rows and carries the conversation (``k8s/status/conversation``); ``describing`` is what
FastAPI and OpenAPI need of their parameters and answers. ``endpoints`` answers about the cluster and passes actions
on, ``tasks`` answers about the tasks of ``--store``, which ``served_tasks`` carries out, ``page`` renders the live page
and the reference. ``app`` puts it together; ``command`` reads the options, and ``listening`` serves.

*Who may.* On this machine everybody may look. Callers from other machines need a Kubernetes token, and the API server
decides what that account may see (``access``): ``serve`` lends nobody its own rights.
"""
