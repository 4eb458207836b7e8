"""`postmortem watch LOGS`: a hang is reported while it lasts; `analyze`, run on logs and stacks, finds the cause."""
