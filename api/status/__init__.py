"""``backoff-ctrl serve``: the cluster's status API, its live page and its metrics, on one port.

*What it knows.* ``observing`` watches the quotas of the cluster. ``gates`` follows the gates, those given by option and
those that ``gates_found`` finds in pods, and makes one stream of their decisions; ``gate`` asks one of them, and has
its last answer. ``unwatched`` adds to the cluster's ceilings what gates hold there, and those that only a gate knows.
``overview`` and ``history`` summarise it for people.

*What it answers.* The table of URLs is that of ``k8s/status/endpoints``; ``shapes`` adds what ``serve`` alone gives,
and examples. ``routing`` makes routes of FastAPI from its rows and carries the conversation
(``k8s/status/conversation``); ``describing`` is what FastAPI and OpenAPI need of their parameters and answers.
``endpoints`` answers about the cluster and passes actions on, ``tasks`` answers about the tasks of ``--store``, which
``served_tasks`` carries out, ``page`` renders the live page and the reference. ``app`` puts it together;
``api/commands/serve`` reads the options, and ``listening`` serves.

*Who may.* On this machine everybody may look. Callers from other machines need a Kubernetes token, and the API server
decides what that account may see (``access``): ``serve`` lends nobody its own rights.
"""
