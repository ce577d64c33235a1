"""Events as typed values, and the log lines that subscribe to them; no decision depends on them."""
