"""Files, processes and caches of this machine; nothing here knows a log."""
