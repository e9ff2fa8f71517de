"""Runs that are killed, compared and given nonsense."""
