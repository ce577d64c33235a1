"""JSON in and out: inputs are checked and refused with a path; results and errors are cleaned and cut instead."""
