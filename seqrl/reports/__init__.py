"""What is read from finished runs and told of them: statistics, pictures, pages. No torch."""
