"""Rounds timed in several processes, and what a report shows of them."""
