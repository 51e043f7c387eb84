"""Work for many machines: jobs that several processes share, on Ray or as shards, and their output.

Ray comes with the extra `ray`, and is imported only when workers are requested.
"""
