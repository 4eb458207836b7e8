"""Claims that lines make by themselves, and the links between them.

observed.py     a claim for each line that matches a pattern
exits.py        ends that the launcher lists; `log_ends.py`: logs that end in an error or a retry
links.py        which claims follow from another one
"""
