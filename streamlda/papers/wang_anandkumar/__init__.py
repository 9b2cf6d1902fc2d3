"""Wang & Anandkumar (2016) on explicit tensors."""
