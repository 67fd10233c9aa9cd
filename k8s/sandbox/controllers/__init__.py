"""The little that the sandbox does of its own accord: garbage collection, namespace conditions."""
