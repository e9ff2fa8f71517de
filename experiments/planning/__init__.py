"""Clusters that are not here: what is assumed of them, and what is modelled."""
