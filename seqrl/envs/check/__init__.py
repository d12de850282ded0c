"""What is wrong with an environment, found out by playing in it."""
