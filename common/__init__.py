"""Code for all other folders: atomic writing of files, statistics, worker processes."""
