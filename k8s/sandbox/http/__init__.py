"""The HTTP face: routing, bodies, forms of an answer."""
