"""The worker: the path of a job from its claim to its finish, and the parts that it is made of."""
