"""JupyterLab in a real browser: the harness (`server`, `lab`) and the tests that open every lesson in it."""
