"""What `run.py` is made of."""
