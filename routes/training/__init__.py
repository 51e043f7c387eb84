"""Recorded routes, of the sample or of files, and the training rows that are made from them."""
