"""The nouns that every other room uses: requests, adapters, traces, random streams."""
