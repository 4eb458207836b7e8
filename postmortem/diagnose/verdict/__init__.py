"""Claims -> the verdict: which claim is the cause, its consequences, and how sure that is.

choose.py       the order of the causes
outcome.py      incident, undetermined or healthy; `reached.py`: how far a job came that just stopped
blame.py        the ranks and hosts behind the root
confidence.py   established, supported or hypothesis
solution.py     all of it, as the document is written from
unread.py       input that was not read; `novelty.py`: lines that no healthy run has
"""
