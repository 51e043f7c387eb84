"""Rows to train on: from recorded routes, or from routes that are grown from templates."""
