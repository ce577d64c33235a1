"""A worker with a broker: its connection, the intake of deliveries, the poll beneath them, and the relay."""
