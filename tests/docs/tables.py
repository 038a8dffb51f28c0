"""What the product itself says of its commands, options, keys and routes: asked of the programs where they can tell, read from the field tables where not."""
import json
import os
import re
import subprocess
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))

# Daemon: (file of its configuration, what it must be given to check one).
DAEMONS = {
    "enclaved": ("enclaved.json", {}),
    "enclave-auditd": ("auditd.json", {"origin": "example", "peers": [{"name": "x", "user": "root"}]}),
    "enclave-cosignd": ("cosignd.json", {}),
    "enclave-witness": ("witness.json", {"name": "w.example", "socket": "/run/enclave/witness.sock", "logs": ["/nonexistent/log.vkey"]}),
    "enclave-keyd": ("keyd.json", {"callers": [{"uid": 0, "ops": ["status"]}]}),
    "enclave-schedd": ("schedd.json", {"lendable": "/nonexistent/lendable"}),
    "enclave-privd": ("privd.json", {}),
    "enclave-agentd": ("agentd.json", {"node": "n1", "controller_host": "192.0.2.1"}),
}
# Files that no program prints: (source of the table, name of the table there).
FILES = {"units.json": ("node-agent/privd/site.c", "fields"), "users.json": ("controller/enclaved/ctl.c", "user_fields"),
         "policy/NAME.json": ("policies/policy.c", "enc_policy_fields")}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def run(*words):
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout


class Programs:
    """The programs of one build."""

    def __init__(self, build):
        self.build, self.found = os.path.abspath(build), {}
        for where, dirs, names in os.walk(build):
            dirs[:] = [d for d in dirs if d != "CMakeFiles"]
            for name in names:
                if name in {*DAEMONS, "enclavectl", "enclave-verify"} and os.access(os.path.join(where, name), os.X_OK):
                    self.found[name] = os.path.join(where, name)

    def commands(self):
        """{"member add": (["NAME", "USER[:ROLE]"], {"--x"})}: words and options of each row; a row for the rest of a verb is "verb ..."."""
        code, text = run(self.found["enclavectl"], "--help")
        assert code == 0, text
        rows = [(line[2:14].strip(), line[14:26].strip()) for line in text.splitlines() if re.match(r"  [a-z]", line)]
        verbs = [verb for verb, _ in rows]
        table = {}
        for verb, sub in rows:
            words = [verb, sub] if sub else [verb]
            code, text = run(self.found["enclavectl"], *words, "--help")
            assert code == 0, text
            usage = re.sub(r"^usage: enclavectl ", "", text.splitlines()[0])[len(" ".join(words)):]
            options = set(re.findall(r"--[a-z-]+", usage))
            plain = re.split(r" \[?--", usage)[0].split()
            table[" ".join(words) + (" ..." if not sub and verbs.count(verb) > 1 else "")] = (plain, options)
        return table

    def options(self, name):
        code, text = run(self.found[name], "--help")
        assert code == 0, text
        return set(re.findall(r"--[a-z-]+", text))

    def keys(self, daemon):
        """{"peers.name": default or None} as --check-config prints them."""
        file, given = DAEMONS[daemon]
        # Below the build: what a daemon started as root believes must not lie in a folder that others write to.
        with tempfile.TemporaryDirectory(dir=self.build) as folder:
            path = os.path.join(folder, file)
            with open(path, "w", encoding="utf-8") as f:
                json.dump(given, f)
            code, text = run(self.found[daemon], "--check-config", "--config", path)
        assert code == 0, f"{daemon} --check-config: {text}"
        return flat(json.loads(text[text.index("{"):]), given)


def flat(shown, given):
    keys = {}
    for key, value in shown.items():
        keys[key] = None if key in given else value
        if isinstance(value, list) and value and isinstance(value[0], dict):
            keys.update({f"{key}.{below}": None for below in value[0]})
    return keys


def field_keys(file, table):
    """Keys of a field table in a source, with those of its sub-tables."""
    text = read(file)
    body = re.search(r"enc_field " + re.escape(table) + r"\[\] = \{(.*?)ENC_FIELD_END", text, re.S).group(1)
    keys = {}
    for key, rest in re.findall(r'"([a-z0-9_]+)", ENC_T_\w+(.*?)(?=\n\s*(?:ENC_FIELD|[A-Z] \(|PATH \()|\Z)', body, re.S):
        keys[key] = None
        sub = re.search(r"\.sub = (\w+)", rest)
        if sub:
            keys.update({f"{key}.{below}": None for below in field_keys(file, sub.group(1))})
    return keys


def unserved(commands):
    """Commands that this version has in its table but cannot do: those with no code behind, and those whose route no server has."""
    text = read("controller/cli/commands.c")
    served = {re.sub(r"\{[^}]*\}", "{}", f"{m} {p}") for m, p in routes()}
    names = set()
    for verb, sub, row in re.findall(r'\{ "([a-z-]+)", (?:NULL|"([a-z-]+)"), (.*?) \},\n', text):
        name = f"{verb} {sub}".strip()
        name = name if name in commands else name + " ..."
        route = re.search(r'\b(GET|POST|DELETE), "([^"]+)"', row)
        path = re.sub(r"\{[^}]*\}", "{}", route.group(2)) if route else None
        relay = path and re.sub(r"/v1/audit/\w+", "/v1/audit/{}", path)
        if "enc_cmd_later" in row or (path and f"{route.group(1)} {relay}" not in served):
            names.add(name)
    # Routes that are there to say that they cannot do it yet.
    if "leases cannot be extended yet" in read("controller/enclaved/api_enclave.c"):
        names.add("extend")
    return names


def routes(file="controller/enclaved/api.c"):
    """(method, path with {}) of what the controller serves to people, or (agents.c) to agents."""
    return re.findall(r'\{ "([A-Z]+)", "(/[^"]*)"', read(file))
