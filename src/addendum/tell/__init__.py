"""What people read of a session: one telling of its events, its figures and its money."""
