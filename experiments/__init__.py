"""Studies: each is one command, `python -m experiments.<name>`, and says what it skipped."""
