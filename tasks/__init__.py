"""Task generators."""
