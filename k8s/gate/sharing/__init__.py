"""One ledger per process and API server.

``Share`` (``process``) is a client's part in the ledger of its server: two ledgers would promise the same room twice.
With the first client come the memory of earlier runs, the watch, and what the environment asks for (events, status,
notifications, traces); with the last one they end, but the ledger is kept: the next client finds what it learned.

``memory`` carries what was learned over a restart, in one file per server.
"""
