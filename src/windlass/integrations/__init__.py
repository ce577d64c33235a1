"""Ways into web frameworks. Each module needs its framework, and nothing else in Windlass imports any of them."""
