"""Gives learners accounts on The Littlest JupyterHub, each with its own password:

    sudo /opt/tljh/hub/bin/python /srv/llmlesson/deploy/tljh/learners.py ada grace

By default, whoever types a learner's name first chooses that learner's password. Here it is set before the name exists.
Prints each name with its new password, to hand out on paper; the hub keeps only a hash. An account that already has a
password keeps it. Learners change theirs at /hub/auth/change-password.
"""

import dbm
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import bcrypt  # in the hub's environment, as its authenticator needs it

TLJH = Path(os.environ.get("TLJH_INSTALL_PREFIX", "/opt/tljh"))
READABLE = "abcdefghjkmnpqrstuvwxyz23456789"  # no 1 or l, no 0 or o
LENGTH = 12


def main(names: Sequence[str]) -> int:
    if not names or not all(re.fullmatch(r"[a-z][a-z0-9._-]*", name) for name in names):
        print("Give learners' names: small letters first, then also digits and . _ -", file=sys.stderr)
        return 2
    # The file of the hub's default authenticator (FirstUseAuthenticator): name -> bcrypt hash.
    with dbm.open(str(TLJH / "state" / "passwords.dbm"), "c", 0o600) as passwords:
        for name in names:
            if name.encode() in passwords:
                print(f"{name}\t(already has a password)")
                continue
            password = "".join(secrets.choice(READABLE) for _ in range(LENGTH))
            passwords[name.encode()] = bcrypt.hashpw(password.encode(), bcrypt.gensalt())
            print(f"{name}\t{password}")
    for name in names:
        tljh_config("add-item", "users.allowed", name)
    tljh_config("reload", "hub")
    return 0


def tljh_config(*arguments: str) -> None:
    # Standard output holds names and passwords only.
    subprocess.run([TLJH / "hub" / "bin" / "tljh-config", *arguments], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
