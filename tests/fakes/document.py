"""The node document's wire form (node-agent/proto/document.c), for reading."""
import struct

PEER = [("node", "s"), ("role", "B"), ("address4", "s"), ("address6", "s"), ("overlay", "s"), ("overlay_key", "s"), ("cpus", "I"), ("memory_mb", "Q")]
VOLUME = [("name", "s"), ("key", "s"), ("kind", "B"), ("driver", "s"), ("id", "s"), ("size_bytes", "Q"), ("owner_gid", "I")]
FIELDS = [("node", "s"), ("generation", "Q"), ("pool", "B"), ("enclave_id", "s"), ("enclave_name", "s"), ("not_after", "Q"), ("units", "B"),
          ("fence", "B"), ("controller4", "s"), ("controller6", "s"), ("controller_port", "I"), ("overlay", "B"), ("overlay_port", "I"),
          ("overlay_net", "s"), ("clean", "B"), ("clean_id", "s"), ("challenge", "s"), ("probe_id", "s"), ("roles", "B"), ("slurm_cluster", "s"),
          ("slurmctld_port", "I"), ("slurmd_port", "I"), ("srun_port_first", "I"), ("srun_port_last", "I"), ("munge_key", "s"), ("door", "B"),
          ("login_port", "I"), ("peers", PEER), ("volumes", VOLUME), ("outsiders", [("address", "s")])]


def _read(data, at, fields):
    out = {}
    for name, kind in fields:
        if kind == "s":
            (n,) = struct.unpack_from("<H", data, at)
            out[name] = data[at + 2:at + 2 + n]
            if name != "overlay_key":
                out[name] = out[name].decode()
            at += 2 + n
        elif isinstance(kind, list):
            (n,) = struct.unpack_from("<H", data, at)
            at += 2
            out[name] = []
            for _ in range(n):
                item, at = _read(data, at, kind)
                out[name].append(item)
        else:
            (out[name],) = struct.unpack_from("<" + kind, data, at)
            at += struct.calcsize("<" + kind)
    return out, at


def decode(data):
    assert data[0] == 1, "version"
    doc, at = _read(data, 1, FIELDS)
    assert at == len(data), "left-over bytes"
    return doc
