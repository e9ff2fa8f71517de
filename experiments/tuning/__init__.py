"""What `guidance` compares: problems, cases, and how a case is trained."""
