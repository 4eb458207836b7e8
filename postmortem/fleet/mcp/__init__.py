"""`postmortem mcp`: what an agent may ask about a failed job, by the Model Context Protocol.

    client ─JSON-RPC─▶ server.py ─▶ table.py, tools.py ─▶ cases.py (what was read, kept) ─▶ child.py (reads)
                                          │
                                          └▶ roots.py (what may be read), window.py, answers.py (bounds)

Only reads, only below the given roots. `server.py` is the one module that imports the SDK, the extra `mcp`.
"""
