"""What a model says, of pictures and of itself, and what is made of it: pages and files."""
