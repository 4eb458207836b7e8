"""Whose line, process and failure it is: evidence for the ranks behind files, pids, GPUs and nameless errors.

ways and numbering read it from the logs, elimination finds the ranks that remain, copies merges equal lines.
"""
