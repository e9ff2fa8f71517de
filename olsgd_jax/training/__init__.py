"""The reference harness: a config becomes a training run, and the run its records."""
