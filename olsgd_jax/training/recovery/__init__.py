"""How a run continues after a stop or a divergence, or with other workers."""
