"""What follows for a whole task from what is stored of it: proposals, requests, checks, its end."""
