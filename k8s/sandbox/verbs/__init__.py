"""A module per verb: get, list, watch, create, update, patch, delete."""
