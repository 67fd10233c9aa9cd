"""Controllers beside the quota controller: garbage collection and the deletion of namespaces."""
