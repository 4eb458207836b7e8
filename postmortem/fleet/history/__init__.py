"""The verdicts of a fleet in one store: which failure comes again, on which hosts, and what helped the last
time.

    postmortem analyze logs/ --history fleet.db        files the verdict, and says how often it was seen
    before

`rows` makes a row of a document, `store` keeps it, everything else reads from there. The documents and the
reports stay files. SQLAlchemy, alembic and psycopg are the extra `history`, imported when it is asked for.
"""
