"""dualbcast."""
