"""The HTTP front: routing, request bodies, the forms of an answer, and the paths that are not resources."""
