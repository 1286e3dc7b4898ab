"""What every other room uses: requests, adapters, traces, random streams, errors, range checks, bisection, files."""
