"""Small causal models in numpy alone: `numpy:PATH`, and `builtin`, whose weights ship with the package."""
