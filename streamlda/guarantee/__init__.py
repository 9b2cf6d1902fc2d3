"""All that must be right for a differentially private release; it imports nothing else of ours."""
