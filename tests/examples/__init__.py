"""The applications in examples/, run end to end against local servers."""
