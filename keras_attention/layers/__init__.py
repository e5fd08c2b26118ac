"""The layers."""
