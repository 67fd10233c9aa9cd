"""Following quotas and pods, and telling the ledger what changes."""
