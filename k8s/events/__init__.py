"""Kubernetes events about creates that are waiting for quota."""
