"""Overlap Local-SGD in typical training loops."""
