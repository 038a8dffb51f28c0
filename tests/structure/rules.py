#!/usr/bin/env python3
"""Rules about the sources themselves. One rule per run: rules.py NAME; exit 0, or 1 with one line per breach.

Each rule is a function that yields breaches as text. `rules.py self-test` feeds every rule something bad and expects a breach.
"""
import os
import re
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PRODUCT = ("base", "crypto", "policies", "controller", "node-agent", "plugins")
FILE_MAX, FUNCTION_MAX = 800, 60

# What a folder may include from; the longest matching key counts. "Sideways" (one process into another) is not listed, hence refused.
MAY_INCLUDE = {
    "base": ["base"],
    "crypto": ["base", "crypto"],
    "policies": ["base", "crypto", "policies"],
    "controller": ["base", "crypto", "policies", "node-agent/proto", "SELF"],
    "node-agent/proto": ["base", "crypto", "node-agent/proto"],
    "node-agent": ["base", "crypto", "node-agent/proto", "SELF"],
    "plugins": ["base", "crypto", "node-agent/proto", "plugins/client", "SELF"],
}

# A controller process may be a client of another through the header that is made for that.
CLIENT = r"controller/[a-z]+/client\.h$"

# Unsafe calls: poisoned by base/enc.h as well, this also sees files that forgot it. fork and exec belong to few files.
FORBIDDEN = r"\b(strcpy|strcat|stpcpy|sprintf|vsprintf|gets|strtok|atoi|atol|atoll|atof|alloca|system|popen|tmpnam|tempnam|mktemp|execlp|execvp|execvpe|longjmp)\s*\("
FORK = r"\b(fork|vfork|execve|execv|execl|posix_spawnp?)\s*\("
FORK_FILES = ("base/child_spawn.c", "node-agent/privd/", "controller/schedd/")
SHELL = r'"(/usr)?/bin/(ba|da|z|k|c)?sh"|"sh"|"bash"|"-c"|\bos\.system\b|shell\s*=\s*True'
ONE_PLACE = [(r"#\s*include\s*<json-c/", ("base/json_dom.h",), "json-c is seen by base/json*.c alone"),
             (r"#\s*include\s*<slurm/", ("controller/schedd/", "plugins/"), "libslurm stays in schedd and the plugins")]
THREADS = r"\b(pthread_create|thrd_create)\s*\("


def files(root, folders=PRODUCT, ends=(".c", ".h")):
    for folder in folders:
        for where, dirs, names in os.walk(os.path.join(root, folder)):
            dirs[:] = sorted(d for d in dirs if not d.startswith((".", "build")))
            for name in sorted(names):
                if name.endswith(tuple(ends)):
                    path = os.path.join(where, name)
                    yield os.path.relpath(path, root), open(path, encoding="utf-8").read()


def code_only(text):
    """Comments blanked, lines kept."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0)) if m.group(0).startswith("/") else m.group(0)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)


def without_strings(code):
    return re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + " " * (len(m.group(0)) - 2) + '"', code)


def find(pattern, text):
    for m in re.finditer(pattern, text):
        yield text.count("\n", 0, m.start()) + 1, m.group(0).strip()


def includes(root):
    for path, text in files(root):
        parts = path.split("/")
        layer = next((k for k in sorted(MAY_INCLUDE, key=len, reverse=True) if path.startswith(k + "/")), None)
        own = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        allowed = [own if a == "SELF" else a for a in MAY_INCLUDE[layer]]
        for line, what in find(r'#\s*include\s*"[^"]+"', code_only(text)):
            target = what.split('"')[1]
            if not any(target.startswith(a + "/") for a in allowed) and not (layer == "controller" and re.match(CLIENT, target)):
                yield f"{path}:{line}: includes {target}, may include from {', '.join(allowed)}"


def exceptions(root):
    """Lines "path[:function] reason"; a line without a reason is itself a breach."""
    path = os.path.join(root, "tests/data/size_exceptions")
    found = {}
    if os.path.exists(path):
        for line in open(path, encoding="utf-8"):
            if line.strip() and not line.startswith("#"):
                key, _, reason = line.strip().partition(" ")
                found[key] = reason.strip()
    return found


def functions(text):
    """(name, line, length) of function bodies: from a '{' in column 0 to its '}' in column 0."""
    lines = text.split("\n")
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            head, k = "", start - 1
            while k >= 0 and lines[k].strip() and not lines[k].startswith(("}", "#", "/*", " *")):
                head, k = lines[k] + " " + head, k - 1
            m = re.search(r"([A-Za-z_]\w*)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head))
            yield (m.group(1) if m else "?"), start + 1, i - start + 1
            start = None


def sizes(root):
    allowed, used = exceptions(root), set()
    for key, reason in allowed.items():
        if not reason:
            yield f"tests/data/size_exceptions: {key} has no reason"
    for path, text in files(root):
        count = text.count("\n")
        if count > FILE_MAX:
            used.add(path)
            if path not in allowed:
                yield f"{path}: {count} lines, at most {FILE_MAX}"
        for name, line, length in functions(text):
            if length > FUNCTION_MAX:
                used.add(f"{path}:{name}")
                if f"{path}:{name}" not in allowed:
                    yield f"{path}:{line}: {name} has {length} lines, at most {FUNCTION_MAX}"
    for key in sorted(set(allowed) - used):
        yield f"tests/data/size_exceptions: {key} needs no exception any more"


def calls(root):
    for path, text in files(root):
        code = without_strings(code_only(text))
        if path != "base/enc.h":
            for line, what in find(FORBIDDEN, code):
                yield f"{path}:{line}: {what}) is forbidden"
        for line, what in find(THREADS, code):
            yield f"{path}:{line}: threads: one event loop per process, no threads"
        for line, _ in find(r"\bgoto\b", code):
            yield f"{path}:{line}: goto: use the cleanup attribute (base/cleanup.h)"
        if not path.startswith(FORK_FILES):
            for line, what in find(FORK, code):
                yield f"{path}:{line}: {what}) outside of base/child: use enc_cmd"
        for pattern, places, why in ONE_PLACE:
            if not path.startswith(places):
                for line, _ in find(pattern, code_only(text)):
                    yield f"{path}:{line}: {why}"


def poison(root):
    """base/enc.h last in every source makes the compiler see what `calls` sees. A list, for now: never fails."""
    for path, text in files(root, ends=(".c",)):
        own = re.findall(r'^#include (["<][^">]+[">])', code_only(text), re.M)
        if not own or own[-1] != '"base/enc.h"':
            print(f'{path}: the last #include should be "base/enc.h"')
    return
    yield


def shell(root):
    """Invariant 7: no shell in any daemon, plugin or hook runner."""
    for path, text in files(root):
        for line, what in find(SHELL, code_only(text)):
            yield f"{path}:{line}: {what} looks like a shell"


def globs(root):
    """A build that lists no files does not notice a lost one."""
    for where, dirs, names in os.walk(root):
        dirs[:] = [d for d in dirs if not d.startswith((".", "build"))]
        for name in names:
            if name == "CMakeLists.txt" or name.endswith(".cmake"):
                path = os.path.join(where, name)
                for line, what in find(r"(?i)\bfile\s*\(\s*GLOB\w*", open(path, encoding="utf-8").read()):
                    yield f"{os.path.relpath(path, root)}:{line}: {what}: list the files"


def invariants(root):
    """A list, for now: which invariants of the design have a test with their number in its name. Never fails."""
    found = {n: set() for n in range(1, 16)}
    for path, text in files(root, ("tests",), (".c", ".py")):
        if not path.startswith("tests/structure/"):
            for number in re.findall(r"invariant_(\d\d)", text):
                found.setdefault(int(number), set()).add(path)
    for number, paths in sorted(found.items()):
        print(f"invariant {number:02}: {', '.join(sorted(paths)) if paths else 'NO TEST'}")
    return
    yield


RULES = {f.__name__: f for f in (includes, sizes, calls, poison, shell, globs, invariants)}

# For each rule: a file that must be refused.
BAD = [("includes", "base/x.c", '#include "crypto/hash.h"\n'), ("includes", "controller/keyd/x.c", '#include "controller/auditd/y.h"\n'),
       ("includes", "plugins/pam/x.c", '#include "controller/enclaved/y.h"\n'), ("sizes", "base/x.c", "\n" * 801),
       ("sizes", "base/x.c", "int f (void)\n{\n" + "\tx;\n" * 60 + "}\n"), ("calls", "base/x.c", "\tstrcpy (a, b);\n#include \"base/enc.h\"\n"),
       ("calls", "controller/x.c", "\tif (fork () == 0)\n#include \"base/enc.h\"\n"),
       ("calls", "controller/x.c", "#include <json-c/json.h>\n#include \"base/enc.h\"\n"), ("calls", "base/x.c", "\tgoto out;\n#include \"base/enc.h\"\n"),
       ("shell", "node-agent/privd/x.c", 'enc_cmd_new ("/bin/sh");\n'), ("globs", "base/CMakeLists.txt", "file (GLOB x *.c)\n")]


def self_test():
    for rule, path, text in BAD:
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
            if not list(RULES[rule](root)):
                yield f"{rule} takes {path} with {text[:40]!r}"


def main():
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in RULES and name != "self-test":
        sys.exit(f"usage: rules.py {'|'.join(RULES)}|self-test")
    breaches = list(self_test() if name == "self-test" else RULES[name](ROOT))
    print("\n".join(breaches) if breaches else f"{name}: nothing to complain about")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
