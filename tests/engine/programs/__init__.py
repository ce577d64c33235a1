"""Programs of the stories whose handlers run in processes of their own."""
