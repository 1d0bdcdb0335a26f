"""What happened: events, the log, the surface, the store's protocol."""
