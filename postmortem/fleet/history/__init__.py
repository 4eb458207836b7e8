"""Verdicts of many jobs in one store: whether a failure is known, on which hosts it occurs, which fix helped.

`rows` and `runs` make rows of documents and journals, `store` holds them, all other modules read from it. The
extra `history` (SQLAlchemy, alembic, psycopg) is imported only when a history is named.
"""
