"""Whose line, process and failure it is: evidence for the ranks behind files, pids, GPUs, nameless errors and the root.

ways and numbering read it from the logs, elimination finds the ranks that remain, copies merges equal lines, blame answers for the root.
"""
