"""Read what an API server's answer means: its lane and, for a quota rejection, the amounts. Pure; loads no client."""
