"""What is measured of a run, and the files that hold it."""
