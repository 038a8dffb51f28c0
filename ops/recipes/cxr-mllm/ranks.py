"""Who am I among the tasks of this job, and how do the tasks reach each other?

The enclave's Slurm plugin injects RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and
GLOO_SOCKET_IFNAME. Without it the same facts come from srun's own variables, so that the trainer
runs under bare srun too. Standard library only.
"""
import collections
import fcntl
import ipaddress
import os
import socket
import struct

SIOCGIFADDR = 0x8915
PORT_BASE, PORT_SPAN = 61000, 4500       # above Linux's ephemeral range, so never taken by chance

Ranks = collections.namedtuple("Ranks", "rank world local")


class LaunchError(Exception):
    """The environment does not say how to run; the text is for the user."""


def _first(names, default):
    for name in names:
        if os.environ.get(name):
            return os.environ[name]
    return default


def _integer(names, default):
    text = _first(names, default)
    if not text.isdecimal():
        raise LaunchError(f"{names[0]} is not a number")
    return int(text)


def from_environment():
    """Return the Ranks of this task; for more than one task, settle where they meet."""
    ranks = Ranks(_integer(("RANK", "SLURM_PROCID"), "0"),
                  _integer(("WORLD_SIZE", "SLURM_NTASKS"), "1"),
                  _integer(("LOCAL_RANK", "SLURM_LOCALID"), "0"))
    if ranks.rank >= ranks.world:
        raise LaunchError(f"rank {ranks.rank} of {ranks.world}: RANK and WORLD_SIZE disagree")
    if ranks.world > 1:
        _settle_meeting_point()
    return ranks


def _settle_meeting_point():
    address = _first(("MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"), "")
    if not address:
        raise LaunchError("MASTER_ADDR is not set: start the ranks with srun")
    address = _resolve(address)
    if ipaddress.ip_address(address).is_loopback and _integer(("SLURM_NNODES",), "1") > 1:
        raise LaunchError("MASTER_ADDR is a loopback address, but the job has several nodes")
    os.environ["MASTER_ADDR"] = address
    job = _integer(("SLURM_JOB_ID",), "0")
    os.environ.setdefault("MASTER_PORT", str(PORT_BASE + job % PORT_SPAN))
    interface = _interface_towards(address)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "=" + interface)


def _resolve(name):
    try:
        return socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise LaunchError("MASTER_ADDR cannot be resolved on this node") from error


def _interface_towards(address):
    """The interface whose address this host uses towards `address`; None if that is unclear.

    Without it gloo listens on whatever the host's own name resolves to, often loopback.
    """
    if ":" in address:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))      # chooses a route; sends nothing
        except OSError as error:
            raise LaunchError("there is no route to MASTER_ADDR from this node") from error
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if _address_of(probe, name) == own:
                return name
    return None


def _address_of(probe, interface):
    try:
        reply = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()))
    except OSError:                          # no IPv4 address
        return None
    return socket.inet_ntoa(reply[20:24])
