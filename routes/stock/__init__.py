"""The molecules that can be bought, and what is known of them."""
