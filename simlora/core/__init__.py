"""Shared by all rooms: requests, adapters, traces, random streams, errors, checks, arrays, bisection, files."""
