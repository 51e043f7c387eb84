"""What every room may need: whole files, statistics, worker processes."""
