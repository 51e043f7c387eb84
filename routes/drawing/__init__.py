"""Pictures of routes."""
