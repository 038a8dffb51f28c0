#!/usr/bin/env python3
"""Pages that drift from the product are refused. check.py RULE BUILD: one rule a run; exit 0, or 1 with one line for each breach, 77 when it cannot be checked here.

Man pages against the programs' own tables, keys of configuration files against --check-config, openapi.yaml against the route tables, links, commands that
pages tell people to type, spelling, and what must not stand in the repository.
"""
import json
import os
import re
import shutil
import subprocess
import sys

import tables
from tables import DAEMONS, FILES, ROOT, read

SKIP = 77
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
# Whom a page may point at: places for examples, and standards.
HOSTS = r"(localhost|host|other|p|evil\S*|[\w.-]*example(\.(com|org|net))?|deb\.debian\.org|c2sp\.org|www\.gnu\.org|slurm\.schedmd\.com)"
AMERICAN = r"\b(colou?rize|color|colors|behavior|behaviors|center|favor|honor|labeled|authorized?|authorization|initialized?|organization|recognized?|canceled|catalog|artifact|artifacts|license[ds]\b)"


def markdown():
    for folder, dirs, names in os.walk(ROOT):
        dirs[:] = [d for d in dirs if not d.startswith((".", "build"))]
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def sources():
    for folder, dirs, names in os.walk(ROOT):
        dirs[:] = sorted(d for d in dirs if d not in (".git", "__pycache__", "corpus", ".cache", ".pytest_cache") and not d.startswith("build"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if name == ".git" or os.path.islink(path) or name.endswith((".pyc", ".hex", ".zip", ".png")):
                continue
            try:
                yield path, read(path)
            except (UnicodeDecodeError, FileNotFoundError):
                pass


def plain(roff):
    """Text of roff without its marks."""
    roff = re.sub(r"\\f(\[\w*\]|.)", "", roff)
    return roff.replace("\\-", "-").replace("\\&", "").replace("\\(aq", "'").replace("\\ ", " ")


def section(page, name):
    m = re.search(r"^\.SH " + name + r"\n(.*?)(?=^\.SH |\Z)", page, re.S | re.M)
    return m.group(1) if m else ""


def tags(text):
    """[(tag, what follows it up to the next command)]: .TP and its next line, in plain text; nested lists belong to the tag above."""
    found, depth, lines = [], 0, text.split("\n")
    for i, line in enumerate(lines):
        depth += (line == ".RS") - (line == ".RE")
        if line in (".TP", ".TQ") and depth == 0:
            found.append([plain(lines[i + 1]).strip(), ""])
        elif line == ".PP" and depth == 0 and found:
            found.append(["", ""])
        elif found:
            found[-1][1] += line + "\n"
    return [(tag, text) for tag, text in found if tag]


# --- rules ----------------------------------------------------------------------------------------------------------------

def commands(build):
    """enclavectl(1) has each command of the table with its words and options, and no other; LIMITS has those that this version cannot do."""
    table = tables.Programs(build).commands()
    page = read("ops/man/enclavectl.1")
    cannot = tables.unserved(table)
    seen = set()
    for name in ("COMMANDS", "LIMITS"):
        for tag, text in tags(section(page, name)):
            key = next((k for k in sorted(table, key=len, reverse=True) if tag == k or tag.startswith(k + " ")), None)
            if not key:
                yield f"enclavectl.1: {tag}: no such command"
                continue
            seen.add(key)
            words, options = table[key]
            if not key.endswith("...") and tag[len(key):].split() not in (words, ["..."] if words == ["[WORD]..."] else words):
                yield f"enclavectl.1: {tag}: its words are {' '.join(words)}"
            if name == "LIMITS" and key not in cannot:
                yield f"enclavectl.1: {tag} is served, but stands in LIMITS"
            if name == "COMMANDS" and key in cannot:
                yield f"enclavectl.1: {tag} is not served: it belongs into LIMITS"
            yield from options_of(key, options, text, table)
    for key in sorted(set(table) - seen):
        yield f"enclavectl.1: lacks {key}"


def options_of(key, options, text, table):
    told = {m for line in text.split("\n") if not line.startswith(".\\") for m in re.findall(r"(?<![\w-])--[a-z][a-z-]*", plain(line))} - {"--json", "--progress"}
    same = re.search(r"options of\n?\s*\\fB([a-z ]+)\\fR", text)
    if same:
        told |= table[same.group(1)][1]
    for option in sorted(options - told):
        yield f"enclavectl.1: {key}: lacks {option}"
    for option in sorted(told - options):
        yield f"enclavectl.1: {key}: has no option {option}"


def options(build):
    """Each program's man page has the options that its --help has, and no other."""
    programs = tables.Programs(build)
    for name in [*DAEMONS, "enclave-verify"]:
        path = f"ops/man/{name}.{1 if name == 'enclave-verify' else 8}"
        told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", plain(section(read(path), "OPTIONS"))))
        real = programs.options(name)
        for option in sorted(real - told):
            yield f"{path}: lacks {option}"
        for option in sorted(told - real):
            yield f"{path}: {name} has no option {option}"


def man(build):
    """All pages are there, are installed, and are sound roff."""
    wanted = {f"{n}.8" for n in DAEMONS} | {"enclavectl.1", "enclave-verify.1", "pam_enclave.8", "spank_enclave.8"}
    there = {n for n in os.listdir(os.path.join(ROOT, "ops/man")) if n[-1].isdigit()}
    listed = set(re.findall(r"[\w-]+\.[18]\b", read("ops/man/CMakeLists.txt")))
    for name in sorted(wanted - there):
        yield f"ops/man: lacks {name}"
    for name in sorted(there ^ listed):
        yield f"ops/man/CMakeLists.txt: {name} is not both there and installed"
    for name in sorted(there):
        text = read(f"ops/man/{name}")
        for part in ("NAME", "DESCRIPTION", "SEE ALSO"):
            if not section(text, f'"?{part}"?'):
                yield f"ops/man/{name}: no section {part}"
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", os.path.join(ROOT, "ops/man", name)], text=True, stderr=subprocess.PIPE)
            for line in done.stderr.splitlines():
                yield f"ops/man/{name}: {line}"


def keys(build):
    """Each key of each configuration file stands in docs/admin.md with its default, and no other does."""
    programs, page = tables.Programs(build), read("docs/admin.md")
    real = {file: programs.keys(daemon) for daemon, (file, _) in DAEMONS.items()}
    real.update({file: tables.field_keys(*where) for file, where in FILES.items()})
    for file, wanted in real.items():
        m = re.search(r"^### `/etc/enclave/" + re.escape(file) + r"`.*?\n(.*?)(?=^#|\Z)", page, re.S | re.M)
        told = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", m.group(1), re.M)) if m else {}
        if not m:
            yield f"docs/admin.md: no heading `/etc/enclave/{file}`"
        for key in sorted(set(wanted) - set(told)):
            yield f"docs/admin.md: {file}: lacks {key}"
        for key in sorted(set(told) - set(wanted)):
            yield f"docs/admin.md: {file}: has no key {key}"
        for key in sorted(set(told) & set(wanted)):
            yield from default_of(file, key, told[key], wanted[key])


def default_of(file, key, told, real):
    shown = str(real) if not isinstance(real, list) else " ".join(map(str, real))
    shown = shown.lower() if isinstance(real, bool) else shown
    if real not in (None, "", [], 0) and f"`{shown}`" not in told:
        yield f"docs/admin.md: {file}: default of {key} is {shown}, the page says {told}"


def openapi(build):
    """docs/openapi.yaml has exactly the routes for people; those for agents stand in docs/protocol.md, with their wire formats."""
    try:
        import yaml
    except ImportError:
        sys.exit(SKIP)
    document = yaml.safe_load(read("docs/openapi.yaml"))
    told = {(method.upper(), re.sub(r"\{[^}]*\}", "{}", path)) for path, item in document["paths"].items() for method in item if method != "parameters"}
    for method, path in sorted(set(tables.routes()) - told):
        yield f"docs/openapi.yaml: lacks {method} {path}"
    for method, path in sorted(told - set(tables.routes())):
        yield f"docs/openapi.yaml: {method} {path} is not served"
    yield from references(document, document)
    order = document["components"]["requestBodies"]["order"]["content"]["application/json"]["schema"]["properties"]
    real = {key for key in tables.field_keys("controller/enclaved/api_create.c", "want_fields") if "." not in key}
    for key in sorted(real ^ set(order)):
        yield f"docs/openapi.yaml: order: {key} is not both in the page and in want_fields"
    for method, path in tables.routes("controller/enclaved/agents.c"):
        if not re.search(f"`{method} {path}", read("docs/protocol.md")):
            yield f"docs/protocol.md: lacks {method} {path} of agents"


def references(document, node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                at = document
                for part in value.lstrip("#/").split("/"):
                    at = at.get(part) if isinstance(at, dict) else None
                if at is None:
                    yield f"docs/openapi.yaml: {value} is not there"
            else:
                yield from references(document, value)
    elif isinstance(node, list):
        for value in node:
            yield from references(document, value)


def anchors(path):
    for title in re.findall(r"^#+ +(.*)$", re.sub(r"```.*?```", "", read(path), flags=re.S), re.M):
        yield re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def links(build):
    """Every relative link leads somewhere, to its heading too."""
    for page in markdown():
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", read(page), flags=re.S)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
            if not os.path.exists(os.path.join(ROOT, path)):
                yield f"{page}: {target} is not there"
            elif anchor and path.endswith(".md") and anchor not in set(anchors(path)):
                yield f"{page}: {target}: no such heading"


def typed(build):
    """What pages tell people to type exists: programs of the repository, commands of enclavectl, subcommands of the lab."""
    table = tables.Programs(build).commands()
    verbs = {key.split()[0] for key in table}
    lab = set(re.findall(r'^    add\("([a-z]+)"', read("ops/lab/cli.py"), re.M))
    for page in [*PAGES, *(f"docs/{n}" for n in sorted(os.listdir(os.path.join(ROOT, "docs"))) if n.endswith(".md"))]:
        text = read(page)
        for m in re.finditer(r"(?<![\w/.])((?:ops|tests|\.ci)/[\w./-]*\w)", text):
            path = m.group(1)
            if re.search(r"[A-Z]{4}", path) and not path.endswith("README.md") or re.match(r"-?[{*]", text[m.end():]):
                continue                          # a pattern, or a place for a name
            if not os.path.exists(os.path.join(ROOT, path)):
                yield f"{page}: {path} is not there"
        for path in set(re.findall(r"^(?:sudo )?((?:ops|tests)/[\w./-]+)", text, re.M)):
            if os.path.isfile(os.path.join(ROOT, path)) and not os.access(os.path.join(ROOT, path), os.X_OK):
                yield f"{page}: {path} cannot be run"
        for verb, sub in set(re.findall(r"enclavectl (?:--json )?([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", text)):
            if verb not in verbs or (f"{verb} {sub}" not in table and verb not in table and f"{verb} ..." not in table and sub):
                yield f"{page}: enclavectl {verb} {sub}: no such command"
        yield from typed_options(page, text, table)
        for sub in set(re.findall(r"ops/lab/lab ([a-z]+)", text)) - lab:
            yield f"{page}: ops/lab/lab {sub}: no such subcommand"


def typed_options(page, text, table):
    for words, rest in re.findall(r"enclavectl (?:--json )?([a-z][a-z-]*(?: [a-z][a-z-]*)?)([^`\n|]*)", text):
        key = words if words in table else words.split()[0]
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest if key in table else ""):
            if option not in table[key][1] | {"--json", "--progress", "--socket", "--url", "--help"}:
                yield f"{page}: enclavectl {key} has no option {option}"


def spelling(build):
    """codespell finds nothing, and pages are in British spelling."""
    for page in [*markdown(), *(f"ops/man/{n}" for n in os.listdir(os.path.join(ROOT, "ops/man")))]:
        for number, line in enumerate(read(page).split("\n"), 1):
            for word in re.findall(AMERICAN, re.sub(r"`[^`]*`", "", line), re.I):
                yield f"{page}:{number}: {word[0] if isinstance(word, tuple) else word}: British spelling"
    if not shutil.which("codespell"):
        return
    words = os.path.join(ROOT, "tests/docs/words")
    paths = [path for path, _ in sources() if path != "tests/docs/words"]
    done = subprocess.run(["codespell", "--ignore-words", words, *paths], cwd=ROOT, text=True, stdout=subprocess.PIPE)
    yield from done.stdout.splitlines()


def private(build):
    """The repository speaks of the product alone: no path of a machine that it was made on, no address but examples and standards."""
    own = "tests/docs/check.py"
    for path, text in sources():
        if path == own:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if re.search(r"(?<![\w.\-}/$])/work(/|\b)(?!dir)|\bfarm\b|/root/\.(?!ssh)\w+|/home/(?!res|adm|\$|%|x\b)[a-z]+/", line):
                yield f"{path}:{number}: a path of somebody's machine: {line.strip()[:80]}"
            for host in re.findall(r"https?://([^/:\s\"'`)>,;%{\\]+)", line):
                if not re.fullmatch(HOSTS, host, re.I):
                    yield f"{path}:{number}: {host} is no example and no standard"
            if re.search(r"\b(registry|artifactory|pypi|mirror)\.[a-z-]+\.[a-z]{2,}", line):
                yield f"{path}:{number}: a registry: {line.strip()[:80]}"


def runbook(build):
    """Alarms, dashboard, runbook and the controller's figures name the same things."""
    import yaml
    source, page = read("controller/enclaved/metrics.c"), "docs/runbook.md"
    figures = {name + suffix for name in re.findall(r'"(enclave_[a-z_]+)"', source) for suffix in ("", "_total", "_count", "_sum")}
    alerts = {r["alert"]: r for g in yaml.safe_load(read("ops/site/monitoring/alerts.yml"))["groups"] for r in g["rules"]}
    panels = json.loads(read("ops/site/monitoring/dashboard.json"))["panels"]
    used = [(name, rule["expr"]) for name, rule in alerts.items()] + [(p["title"], t["expr"]) for p in panels for t in p["targets"]]
    for where, expression in used:
        for figure in sorted(set(re.findall(r"enclave_[a-z_]+", expression)) - figures):
            yield f"{where}: there is no figure {figure}"
    for name, rule in alerts.items():
        if rule["annotations"]["runbook"] != f"runbook.md#{name.lower()}":
            yield f"{name}: does not point at its own paragraph"
    headings = set(re.findall(r"^## (Enclave\w+)$", read(page), re.M))
    yield from (f"{page}: no paragraph for {name}" for name in sorted(set(alerts) - headings))
    yield from (f"{page}: {name} is no alarm" for name in sorted(headings - set(alerts)))


RULES = {f.__name__: f for f in (commands, options, man, keys, openapi, links, typed, runbook, spelling, private)}


def main():
    name, build = (sys.argv + ["", ""])[1:3]
    if name not in RULES or not build:
        sys.exit(f"usage: check.py {'|'.join(RULES)} BUILD")
    breaches = list(RULES[name](build))
    print("\n".join(breaches) if breaches else f"{name}: nothing to complain about")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
