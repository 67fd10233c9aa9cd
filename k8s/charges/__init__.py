"""What a manifest, or a living object, is charged, per quota resource. Pure; loads no client."""
