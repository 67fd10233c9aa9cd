"""The kinds that are served: their schemas, their protobuf form, and the API server's error answers."""
