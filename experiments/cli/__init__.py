"""Parts that command lines share: options, output, progress, a single run."""
