"""The commands, a module each; every module has a click command named ``command``."""
