"""`postmortem collect`: one archive of short-lived evidence of a host or many: stacks, counters, kernel log, GPUs."""
