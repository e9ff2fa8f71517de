"""Processes on one machine: how they start, end, print and report."""
