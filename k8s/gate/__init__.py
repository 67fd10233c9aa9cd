"""The gate: the ledger that all creates of a process share, and the drivers that take creates through it."""
