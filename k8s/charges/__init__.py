"""Compute what a manifest, or an existing object, is charged per quota resource. Pure; loads no client."""
