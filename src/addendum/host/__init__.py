"""What the fronts for people share: opening a session for them, asking them, reading stores."""
