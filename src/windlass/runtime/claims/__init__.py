"""How discovery decides what to claim: how much, how often, which suspects, and what to do when an answer was lost."""
