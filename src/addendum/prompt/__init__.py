"""What is said: the log told as a neutral prompt, by projection."""
