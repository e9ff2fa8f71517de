"""Language models: presets, and what a report shows of them."""
