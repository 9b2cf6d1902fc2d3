"""Documents in, topics out: a state machine without input or output."""
