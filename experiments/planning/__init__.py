"""Clusters that are not here: assumptions about them, and modelled times."""
