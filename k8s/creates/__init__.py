"""One create's life, step by step: name, send, look up, wait. Pure: events in, actions out."""
