"""The course on a JupyterHub: each learner's server opens lesson 00 in their own copy, with the model that all share.

The Littlest JupyterHub loads it by a link in its folder jupyterhub_config.d, which `setup` (beside this folder) makes.
Nothing in it is special to that hub: any whose users have accounts on one host can load it.
"""

import os
from pathlib import Path

c = get_config()  # noqa: F821  # given by JupyterHub

COURSE = Path(__file__).resolve().parents[3]

# Learners read the model there, and need not be able to write.
c.Spawner.environment.update({"LLMLESSON_HOME": os.environ.get("LLMLESSON_HOME", str(COURSE / "model"))})

c.Spawner.cmd = [str(COURSE / "deploy" / "start"), "jupyterhub-singleuser"]
c.Spawner.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.Spawner.args = [
    # A kernel holds about 1 GB, and those of finished lessons are seldom shut down by hand: after 30 idle minutes.
    "--MappingKernelManager.cull_idle_timeout=1800",
    "--MappingKernelManager.cull_interval=300",
    "--MappingKernelManager.cull_connected=True",
]
