"""Tests that run on JAX only: `KERAS_BACKEND=jax python -m pytest tests/jax`."""
