"""Classes of bags of instances: `python -m examples.bags`."""
