"""The machine's own Debian mirror: read from its apt sources, so that no host is named here."""
import pathlib
import re

from common import call

DEFAULT = "http://deb.debian.org/debian"


def _deb822(text):
    for block in re.split(r"\n\s*\n", text):
        block = "\n".join(l for l in block.splitlines() if not l.startswith("#"))
        fields = {k.lower(): v for k, v in re.findall(r"^([\w-]+):[ \t]*(.*)$", block, re.M)}
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes") == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield uri, suite, fields.get("components", "").split(), fields.get("signed-by", "")


def _one_line(text):
    for line in text.splitlines():
        m = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)$", line)
        if m:
            signed = re.search(r"signed-by=(\S+)", m[1] or "")
            yield m[2], m[3], m[4].split("#")[0].split(), signed[1] if signed else ""


def sources(suite, root="/"):
    """[(uri, suite)] of this machine for one Debian suite, its updates and its security suite."""
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    entries = []
    etc = pathlib.Path(root) / "etc/apt"
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            parse = _deb822 if path.suffix == ".sources" else _one_line
            entries += list(parse(path.read_text()))
    entries = [(u.rstrip("/"), s) for u, s, comps, _ in entries if "main" in comps]
    found = list(dict.fromkeys(e for e in entries if e[1] in wanted))
    if not any(s == suite for _, s in found):
        # A machine of another Debian release: its mirror holds this suite as well.
        found = [(u, suite) for u, s in entries if re.fullmatch(r"[a-z]+", s)][:1] or [(DEFAULT, suite)]
    return found


def mirror(suite):
    return next(u for u, s in sources(suite) if s == suite)


def sources_text(suite):
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return "".join(f"deb [signed-by={key}] {u} {s} main\n" for u, s in sources(suite))


def proxy_options():
    """apt's proxy settings of this machine, as options for an apt that runs in another root."""
    out = call("apt-config", "dump", check=False)
    return [w for k, v in re.findall(r'^(Acquire::https?::Proxy\S*) "([^"]*)";', out, re.M) for w in ("-o", f"{k}={v}")]
