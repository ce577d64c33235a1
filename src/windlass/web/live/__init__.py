"""What requests wait for: live lists, the ends of jobs, and the events that tell of them."""
