"""The reader of scheduled programs."""
