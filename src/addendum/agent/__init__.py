"""Who drives: agent, session, the loop of turns and steps."""
