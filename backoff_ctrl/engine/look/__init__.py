"""For those who look: why a request waits, what would become of one, page by page; what outlives a restart.

Looking changes nothing, and takes a millisecond a page: nobody else is served meanwhile.
"""
