"""Weft: one encoder-decoder family for Hugging Face transformers."""
