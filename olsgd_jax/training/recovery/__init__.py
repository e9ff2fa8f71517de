"""How a run goes on: after a stop, a divergence, or with other workers."""
