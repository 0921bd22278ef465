"""Planning: from a measurement to the hierarchy with the least predicted seconds per token."""
