"""Asking an endpoint what it takes: a program that uses the agent, and writes down what it saw."""
