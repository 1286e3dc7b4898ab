"""Random scenarios under observation, and laws that relate what two scenarios come to."""
