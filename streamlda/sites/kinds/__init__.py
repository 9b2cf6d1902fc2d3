"""What sites can learn together: kinds of models, by one protocol."""
