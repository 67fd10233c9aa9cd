"""Quantities, resource names and the resources of a pod, implemented independently of the engine and the gate."""
