"""Training rows, made from recorded routes or from routes that are grown from templates."""
