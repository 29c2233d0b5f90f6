"""A network of its own for a benchmark that starts servers which cannot be bound to one address.

The script is started again in namespaces of its own (`unshare`, on Linux): a network that holds nothing but the
loopback device, so that nothing can be reached from outside, and processes that all end with the script.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

_INSIDE = "TAGFILL_OWN_NETWORK"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def enter_network() -> None:
    """Start this script again in a network, mounts and processes of its own; return if it is there already."""
    if os.environ.get(_INSIDE):
        _raise_loopback()
        return
    namespaces = ["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", ["unshare", *namespaces, sys.executable, *sys.argv])


def _raise_loopback() -> None:
    with socket.socket() as probe:
        flags = struct.unpack("16sh", fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))
