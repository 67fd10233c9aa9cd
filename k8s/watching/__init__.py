"""Watching quotas and pods, and passing their changes on to the ledger."""
