"""Runs that are killed, compared, or given nonsense options."""
