"""The commands: each has a module with a click command named ``command``; the others serve them."""
