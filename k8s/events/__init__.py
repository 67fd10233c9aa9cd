"""Kubernetes events about creates that wait."""
