"""What a running handler uses through `ctx`: steps, waits, children, rates, cost and its transaction."""
