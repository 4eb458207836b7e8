"""One archive of what is lost first: stacks of live ranks, counters, the kernel log, GPUs, the scheduler's
words.

    postmortem collect  ->  postmortem-node-a-20261120T031208Z.tar.zst

`items.py` is the table of what is taken. What runs on a host (`items`, `ranks`, `readers`, `archive`, `here`,
`remote`) needs nothing but a Python 3.8: that is what a host without this package is sent.
"""
