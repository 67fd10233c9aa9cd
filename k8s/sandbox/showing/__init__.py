"""Tables for kubectl, discovery, OpenAPI."""
