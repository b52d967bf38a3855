"""The course on a JupyterHub: each learner's server opens their own copy of lesson 00. All share one copy of the model.

The Littlest JupyterHub loads this file through a link in its folder jupyterhub_config.d; `setup`, one folder up, makes
the link. Any other hub whose users have accounts on one host can load it too.
"""

import os
from pathlib import Path

c = get_config()  # noqa: F821  # JupyterHub defines it

COURSE = Path(__file__).resolve().parents[3]

# Learners only need to read the model there.
c.Spawner.environment.update({"LLMLESSON_HOME": os.environ.get("LLMLESSON_HOME", str(COURSE / "model"))})

c.Spawner.cmd = [str(COURSE / "deploy" / "start"), "jupyterhub-singleuser"]
c.Spawner.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.Spawner.args = [
    # A kernel takes about 1 GB, and few learners shut theirs down. So it is done for them after 30 idle minutes.
    "--MappingKernelManager.cull_idle_timeout=1800",
    "--MappingKernelManager.cull_interval=300",
    "--MappingKernelManager.cull_connected=True",
]
