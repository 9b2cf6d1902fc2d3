"""Several sites that learn together and pool neither documents nor sums; see the README."""
