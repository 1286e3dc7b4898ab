"""What-ifs that no paper could run: `python -m experiments what_if [crossing tenants …] [--seeds 5] [--out DIR]`.

Policies of one beside those of another, mixed clusters, faults, autoscaling.
"""
