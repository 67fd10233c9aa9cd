"""What is told of creates that wait or fail, to people who are not asking: Kubernetes events, and webhooks.

Events are for people who ask ``kubectl describe`` or ``kubectl events``. ``sender`` subscribes to a ledger
(``Reporter``) and reports a create once it has waited for a second, again every five minutes, when it is created after
that, and when it can never fit. ``correlator`` decides, pure and bounded, what is written of it: repeated reports count
up one event, rates are limited per namespace and in all, and what is left out is counted by an event of its own.
``EventSender`` writes, on the runtime, one request at a time. Events are off unless ``BACKOFF_CTRL_EVENTS=1`` or the
program asks for them; where they are forbidden that is logged once.

``webhooks`` reads who wants notifications, finds what is to be told and sends it. They are off unless
``BACKOFF_CTRL_NOTIFY`` names a file of receivers. They are CloudEvents, signed as Standard Webhooks says; each receiver
has a queue of its own on the runtime.

Neither ever delays a create, and neither passes a gate.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
