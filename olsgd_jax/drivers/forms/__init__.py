"""Forms of a mean: how messages are split and sent on each platform."""
