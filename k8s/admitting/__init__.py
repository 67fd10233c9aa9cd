"""Which Jobs may begin, and when? Suspended Jobs and their like wait in line for plain ResourceQuota.

``kinds`` is the table of what can be suspended, and says whose an object is: ours to let in, or left alone.
"""
