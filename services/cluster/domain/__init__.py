"""What nodes have and pods hold, from objects of the API; pure."""
