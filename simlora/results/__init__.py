"""What a run gives: tables, a summary, pictures, and the files that hold them."""
