"""What was spent, on the disk before noise is drawn."""
