"""Stage: read the prompts and choose among them."""
