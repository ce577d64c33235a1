"""What the API does for a caller; each method checks the role and the tenant."""
