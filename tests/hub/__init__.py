"""JupyterHub with two learners at once, as deploy/tljh sets it up."""
