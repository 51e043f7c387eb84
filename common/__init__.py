"""Code for all other rooms: atomic writing of files, options, tables, statistics, worker processes."""
