"""Tools for agents, by the Model Context Protocol (MCP), over one open index."""
