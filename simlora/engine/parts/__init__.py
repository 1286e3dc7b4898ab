"""Mechanisms that some systems have: one a file, with only the hooks that it needs."""
