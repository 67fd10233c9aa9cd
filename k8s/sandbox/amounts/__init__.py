"""Quantities, resource names, and the resources of a pod. On a path of the sandbox's own."""
