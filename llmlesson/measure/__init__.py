"""Counted cost beside measured time."""
