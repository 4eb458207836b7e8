"""`postmortem mcp`: questions of an agent about a failed job, by the Model Context Protocol.

    client ─JSON-RPC─▶ server.py, tools.yaml ─▶ tools.py ─▶ cases.py (cached analyses) ─▶ child.py (reads logs)
                                                   │
                                                   └▶ roots.py (permitted paths), window.py

It only reads, and only below the given roots. `server.py` alone imports the SDK, the extra `mcp`.
"""
