"""The atlas: what every head of a large model does, from its weights, from its patterns, and by removal."""
