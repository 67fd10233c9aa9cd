"""The object store: objects in memory, their history, identity and metadata rules, selectors, and definitions."""
