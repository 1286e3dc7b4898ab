"""Mutation testing: small mistakes put into the code that decides results, to see whether a test notices."""
