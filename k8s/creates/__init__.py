"""The life of one create, as pure code: draw a name, send, look up, wait. Events go in, actions come out."""
