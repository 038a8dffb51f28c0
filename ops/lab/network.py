"""Faults on the lab's bridge: a host, or the pair of two hosts, whose packets are all dropped, both ways."""
import json

from common import LabError, read_text, write_file
from hosts import host


def _file(lab):
    return lab.dir / "cuts.json"


def cuts(lab):
    """{host: [peers]}; the peer "*" stands for everybody."""
    return json.loads(read_text(_file(lab), "{}"))


def is_cut(lab, name):
    return "*" in cuts(lab).get(name, [])


def cut(lab, name, peer=None):
    _change(lab, name, peer, add=True)


def heal(lab, name, peer=None):
    """Without a peer, all cuts of the host end."""
    _change(lab, name, peer, add=False)


def _change(lab, name, peer, add):
    for each in filter(None, (name, peer)):
        if not lab.has(each):
            raise LabError(f"this lab has no host {each}")
    if name == peer:
        raise LabError(f"{name} cannot be cut from itself")
    table = {k: set(v) for k, v in cuts(lab).items()}
    touched = {name} | ({peer} if peer else table.get(name, set()) - {"*"} if not add else set())
    if add:
        table.setdefault(name, set()).add(peer or "*")
        if peer:
            table.setdefault(peer, set()).add(name)
    elif peer:
        table.get(name, set()).discard(peer)
        table.get(peer, set()).discard(name)
    else:
        table.pop(name, None)
        for others in table.values():
            others.discard(name)
    write_file(_file(lab), json.dumps({k: sorted(v) for k, v in table.items() if v}))
    for each in sorted(touched):
        _apply(lab, each, table.get(each, set()))


def _apply(lab, name, peers):
    """One netdev table on the host's bridge port; also written down, because each boot of the host makes a new port."""
    port, table, path = f"v-{name}", f"cut-{name}", lab.base(name) / "cut.nft"
    rules = {"egress": [], "ingress": []}
    for peer in sorted(peers):
        if peer == "*":
            rules["egress"].append("drop")
            rules["ingress"].append("drop")
        else:
            rules["egress"].append(f"ether saddr {host(peer).mac} drop")
    text = f"table netdev {table} {{}}\ndelete table netdev {table}\n"
    if peers:
        chains = "\n".join(f" chain {hook} {{ type filter hook {hook} device {port} priority 0; {'; '.join(r)}; }}" for hook, r in rules.items() if r)
        text += f"table netdev {table} {{\n{chains}\n}}\n"
        write_file(path, text)
    else:
        path.unlink(missing_ok=True)
    if lab.alive(name):
        lab.inside("nft", "-f", "-", stdin=text)
