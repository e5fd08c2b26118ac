"""Models that speak and listen, with attentions that remember where they looked."""
