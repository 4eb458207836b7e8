"""What tests need of the system below: a library in which calls fail, and a process that runs under it."""
