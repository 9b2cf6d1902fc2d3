"""Documents from where they are, in blocks, on their way to a learner."""
