"""What none of the papers could run: policies of one beside those of another, mixed clusters, faults, autoscaling."""
