"""The program: all commands by name, and those that make something of the terminal and the page."""
