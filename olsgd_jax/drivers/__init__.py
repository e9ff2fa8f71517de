"""How a round becomes programs on a platform."""
