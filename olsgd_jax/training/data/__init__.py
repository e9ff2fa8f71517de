"""Data: loads data sets, and makes every worker's batches of them."""
