"""Notices about creates that wait or fail, pushed to people: Kubernetes events, and webhooks.

Events are for people who ask ``kubectl describe`` or ``kubectl events``. ``sender`` subscribes to a ledger
(``Reporter``) and reports a create once it has waited for a second, again every five minutes, when it is created after
that, and when it can never fit. ``correlator``, which is pure and bounded, decides what is written: repeated reports
increase the count of one event, rates are limited per namespace and in total, and one event per namespace counts what
was left out. ``EventSender`` writes, on the runtime, one request at a time. Events are off unless
``BACKOFF_CTRL_EVENTS=1`` or the program asks for them; where they are forbidden that is logged once. A sidecar writes
those about its own pod (``own_pod``) by default, after half a minute.

``webhooks`` sends notifications, if ``BACKOFF_CTRL_NOTIFY`` names a file of receivers. They are CloudEvents, signed as
the Standard Webhooks specification says; each receiver has its own queue on the runtime.

Neither ever delays a create, and their requests do not pass a gate.
"""
