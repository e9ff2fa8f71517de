"""Rounds timed in several processes, and their sections of a report."""
