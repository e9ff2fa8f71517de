"""Workers: the axis along which they lie, their mesh, and how arrays lie on it."""
