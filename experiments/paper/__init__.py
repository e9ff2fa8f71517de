"""The paper's experiment: presets, sweeps, and sections on its runs."""
