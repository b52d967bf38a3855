"""Counted cost and measured time."""
