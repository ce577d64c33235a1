"""The store on a SQLite file: one writer per process, one file for all of them."""
