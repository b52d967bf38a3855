"""`python inside.py READ_ONLY… -- COMMAND…`, in namespaces of its own: see hard.py."""

import fcntl
import os
import socket
import struct
import subprocess
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1

if __name__ == "__main__":
    at = sys.argv.index("--")
    for folder in sys.argv[1:at]:
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.execvp(sys.argv[at + 1], sys.argv[at + 1 :])
