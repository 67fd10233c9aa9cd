"""What an API server's answer means. Pure; loads no client.

``answer`` is an answer as a value, and those that the gate writes itself. ``rejections`` reads what is not a success:
its lane and, for a full quota, the amounts, which ``quota_sentence`` parses from the words of quota admission.
``bounded_json`` reads the bytes of answers, with all that a tenant may have stored; ``fields`` reads unknown JSON, of
answers and of manifests, and ``objects`` an object once, for all that is asked of it at each step. ``paging`` follows
lists, ``printing`` makes text safe to print, ``spelling`` says which name a misspelt one means. Every room of the
cluster except the sandbox builds on this one.

What surprises: the text counts before the status code, and only in its own place in the message, because anybody may
name an object like the sentence of a full quota. Malformed bytes raise only in the strict readers of ``fields``.
"""
