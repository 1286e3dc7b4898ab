"""What every other room uses: requests, adapters, traces, random streams, errors, checks, arrays, bisection, files."""
