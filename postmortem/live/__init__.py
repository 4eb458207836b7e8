"""Beside a running job: run, watch, collect, and the hooks in its processes."""
