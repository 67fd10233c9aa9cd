"""What is known: amounts, who wants what, quotas and their ceilings, by which fact and since when.

Amounts are integers of nano-units (``quantities``). ``demand`` is what one create is charged, ``parts`` the same of a
gang, ``requests`` and ``outcomes`` its life. ``ceilings``, ``quotas`` and ``living`` keep each fact with its time: an
older one never replaces a newer one. ``shapes`` are requests with equal demand, ``roll`` counts who comes how many-th.
"""
