"""One ledger per process and API server, and its memory over a restart."""
