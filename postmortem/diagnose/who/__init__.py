"""Whose line, process and failure it is: the ranks behind pids, files, writers, GPUs, nameless errors and the root."""
