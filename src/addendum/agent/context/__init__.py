"""What a request says: its epoch, its size, how it is sent, and what it costs to change it."""
