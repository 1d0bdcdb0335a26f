"""What a conversation cost: judged from captured bodies and reported usage alone."""
