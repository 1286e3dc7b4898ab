"""What a paper does not print: which conditions its claims allow, and what they predict of the claims held back."""
