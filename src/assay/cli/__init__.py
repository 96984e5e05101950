"""One small file per command; the only room that prints or exits."""
