"""The rules of the source tree: a test fails here when the code, its names or its documents drift apart.

Nothing here runs the package's work: files are read and parsed only. Each failure names the place and what to do. Where
a rule has exceptions, the table beside it gives each one its reason; one that is no longer needed fails too.
"""
