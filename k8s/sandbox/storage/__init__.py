"""Objects in memory: versions, history, identity, selectors."""
