"""What an API server's answer means: its lane, and for a quota refusal the amounts. Pure; loads no client."""
