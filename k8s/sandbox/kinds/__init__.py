"""The kinds that are served, their schemas and protobuf form, and the API server's error answers."""
