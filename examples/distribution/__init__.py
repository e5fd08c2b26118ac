"""Training on several devices: one script for each way."""
