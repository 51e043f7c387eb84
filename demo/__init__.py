"""A web page to try models: plan routes and generate texts. Needs the extra `app`."""
