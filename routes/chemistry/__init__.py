"""What a single molecule or reaction is, without a word about records of others."""
