"""Who comes next: the order of those that wait, and when one of them may test for room.

``order`` has the rows, ``spans`` what many of them lack, ``seats`` the places of callers that are away, ``keeping`` the
room that is kept for who was overtaken too often. ``knowledge`` says which shape meets which ceilings in a namespace.
``blocks`` are full ceilings with their back-off, ``pace`` bounds creates in flight, ``quota_reads`` reads quotas where
no watch does.
"""
