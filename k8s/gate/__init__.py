"""The ledger that all creates of a process share, and what drives creates through it."""
