"""Overlap Local-SGD in training loops as people write them."""
