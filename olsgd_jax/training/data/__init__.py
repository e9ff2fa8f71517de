"""From a data set's name to every worker's batches."""
