"""Claims that no single line makes, by a comparison of the ranks.

rank_rows.py    a row for each rank (complaint, stack, step, end), and which of them is the odd one out
hangs.py        the comparisons where ranks wait, best evidence first: `library_reports`, `recorder`, `watchdogs`,
                `comparisons` (stacks, code, ends, silence) and `hints`
joining.py      ranks that did not join their group
rank_lists.py   values that each rank prints
standstill.py   a job silent for long until it was ended; `stops.py`: signals without a sender
"""
