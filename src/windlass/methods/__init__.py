"""The methods of `Windlass` that are no declaration, by subject, with the functions that the command line shares."""
