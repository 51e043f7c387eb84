"""Work for many machines: jobs that several processes share, on Ray or as shards, and their output.

Nothing here imports Ray before workers are wanted. It comes with the extra `ray`.
"""
