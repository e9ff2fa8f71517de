"""Scripts that each answer one question with the library."""
