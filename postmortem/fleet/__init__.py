"""Many incidents: history, comparison of runs, notifications, and the MCP server."""
