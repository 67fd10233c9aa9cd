"""How objects and kinds are shown to clients: Tables for ``kubectl get``, discovery, OpenAPI."""
