"""The paper's experiment: its presets and sweeps, and what its runs show."""
