"""The hub of the test: what deploy/tljh/ sets for learners, and around it what only a test needs."""

import json
import os
from pathlib import Path

from browser.parent import end_with_parent

c = get_config()  # noqa: F821  # given by JupyterHub
end_with_parent()

scratch = Path(os.environ["HUB_SCRATCH"])
settings = json.loads((scratch / "settings.json").read_text())
COURSE = Path(__file__).resolve().parents[2]

c.JupyterHub.bind_url = settings["url"]
c.JupyterHub.hub_port = settings["hub_port"]
c.ConfigurableHTTPProxy.api_url = settings["proxy_api_url"]
c.ConfigurableHTTPProxy.pid_file = str(scratch / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{scratch}/hub.sqlite"
c.JupyterHub.cookie_secret_file = str(scratch / "cookie_secret")

c.JupyterHub.authenticator_class = "shared-password"  # as in deploy/kubernetes/values.yaml
c.SharedPasswordAuthenticator.user_password = settings["password"]
c.Authenticator.allow_all = True

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(scratch / "home" / "{username}")

load_subconfig(str(COURSE / "deploy" / "tljh" / "jupyterhub_config.d" / "llmlesson.py"))  # noqa: F821

# As `setup` puts them below the environment's etc/jupyter, then what the browser needs.
config_path = os.pathsep.join([str(scratch / "config"), str(COURSE / "deploy" / "jupyter")])
c.Spawner.environment.update({"JUPYTER_CONFIG_PATH": config_path})
c.Spawner.args.append("--LabApp.expose_app_in_browser=True")

start = list(c.Spawner.cmd)


def become_learner(spawner):
    """Each learner gets a home and, where the test may give one, a user id of their own."""
    home = Path(spawner.home_dir)
    home.mkdir(parents=True, exist_ok=True)
    if settings["become"]:
        uid = str(settings["first_uid"] + spawner.user.id)
        os.chown(home, int(uid), int(uid))
        spawner.cmd = [part.replace("UID", uid) for part in settings["become"]] + start


c.Spawner.pre_spawn_hook = become_learner
