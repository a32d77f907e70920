"""What node agents report, and the questions that they answer."""
