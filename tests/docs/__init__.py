"""Tests of the documents: their examples run, and what they name is there."""
