"""Providers on loopback: strict simulators that play a script and count their cache by rule."""
