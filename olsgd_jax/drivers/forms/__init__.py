"""Forms of a mean: how its messages are cut and sent on each platform."""
