"""Code for all other packages: atomic writing of files, options, tables, statistics, worker processes."""
