"""A reader of scheduled HLO programs."""
