"""The planner: a target in, ranked routes out."""
