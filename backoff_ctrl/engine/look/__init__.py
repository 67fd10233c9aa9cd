"""For those who look: why a request waits, what would become of one, page by page; what outlives a restart.

Looking has no effect, and takes a millisecond a page: no create is served meanwhile.
"""
