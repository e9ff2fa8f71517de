"""What is measured in a run, and the files that hold it."""
