"""An HTTP server for models, with limits on size, number and time. Needs the extra `serve`."""
