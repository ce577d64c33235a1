"""Child processes: how a worker runs attempts in processes of their own, and the code that runs in them."""
