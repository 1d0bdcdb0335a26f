"""MCP servers: what one is and offers, the ways to it, connections that outlive breaks."""
