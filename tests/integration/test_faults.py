"""Whatever dies, and wherever: an open enclave or a clean pool. The cells are made from the step table (controller/enclaved/steps.c) and from the named points of
the other daemons. By default every row is killed once on the way up and once on the way down, in two chains; `nightly` has each cell by itself.
"""
import concurrent.futures
import time

import pytest
from conftest import wait_until
from faults import Faults, steps

STEPS = steps()
UP = ("after_intent", "before_do", "after_do", "before_check")
DOWN = ("before_undo", "after_undo")
# What a point outside enclaved needs to be reached: (process, point line, the way it lies on).
OTHERS = [
    ("enclave-auditd", "audit.before_commit kill 12", "up"),
    ("enclave-keyd", "keyd.grant.done kill", "up"),
    ("enclave-schedd", "schedd.away.done kill", "up"),
    ("enclave-privd", "privd.roles.done kill", "up"),
    ("enclave-agentd", "agentd.volumes.done kill", "up"),
    ("enclave-privd", "privd.volumes kill", "down"),
]
OTHERS_NIGHTLY = [
    *[("enclave-auditd", f"audit.{point} kill 12", way) for point in ("before_commit", "before_write", "after_fsync", "before_ack", "before_sign") for way in ("up", "down")
      if (point, way) != ("before_commit", "up")],
    *[("enclave-keyd", f"keyd.{op}{done} kill", "up") for op in ("nonce", "attest", "lease", "key", "grant", "members") for done in ("", ".done") if (op, done) != ("grant", ".done")],
    *[("enclave-keyd", f"keyd.{op}{done} kill", "down") for op in ("grant", "destroy", "lock") for done in ("", ".done")],
    *[("enclave-schedd", f"schedd.{op}{done} kill", "up") for op in ("reserve", "drain", "away", "jobs", "snapshot") for done in ("", ".done") if (op, done) != ("away", ".done")],
    *[("enclave-schedd", f"schedd.{op}{done} kill", "down") for op in ("resume", "release") for done in ("", ".done")],
    *[("enclave-privd", f"privd.{job}{done} kill", "up") for job in ("units", "fence", "overlay_key", "clean", "measure", "overlay", "volumes", "roles", "probe")
      for done in ("", ".done") if (job, done) != ("roles", ".done")],
    *[("enclave-privd", f"privd.{job}{done} kill", "down") for job in ("roles", "volumes", "overlay", "clean", "fence", "units") for done in ("", ".done")
      if (job, done) != ("volumes", "")],
    *[("enclave-agentd", f"agentd.{area}{done} kill", "up") for area in ("units", "fence", "clean", "measure", "overlay", "members", "volumes", "roles", "probe")
      for done in ("", ".done") if (area, done) != ("volumes", ".done")],
    *[("enclave-agentd", f"agentd.{area}{done} kill", "down") for area in ("roles", "volumes", "clean", "units") for done in ("", ".done")],
    # These two are asked for in each round of an agent, the first of them as it starts: the second time is on the way down.
    *[("enclave-agentd", f"agentd.{area}{done} kill 2", "down") for area in ("overlay", "fence") for done in ("", ".done")],
]
FAILS = ("storage", "join", "open")


@pytest.fixture(scope="module")
def table(lab, request):
    faults = Faults(lab)
    yield faults
    faults.watch.stop()
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        faults.print_table(lambda text: print(text, end=""))


@pytest.fixture
def faults(table, request):
    """A clean pool before; after a failure the journals go to the test's output, and the pool is put in order."""
    if table.unclean():
        table.answers()
        wait_until(lambda: not table.unclean(), 30, f"a clean pool to begin with: {table.unclean()}")
    yield table
    if getattr(request.node, "failed_call", False):
        print(table.journals())
        table.watch.broken.clear()
        table.repair()


class Cell:
    """Notes in the table how the body ended."""

    def __init__(self, faults, name):
        self.faults, self.name, self.ended = faults, name, "?"

    def __enter__(self):
        self.start = time.monotonic()
        return self

    def __exit__(self, kind, value, trace):
        self.faults.note(self.name, f"BAD: {str(value).splitlines()[0][:160]}" if kind else self.ended, self.start)


def opened(faults):
    enclave = faults.create()
    assert faults.settle(enclave) == "open"
    return enclave


def closed(faults, enclave):
    """The rest of a cell that ended open: it can be taken apart."""
    if faults.enclave().get("state") == "open":
        faults.destroy()
    assert faults.settle(enclave, ("closed",)) == "closed"


def hit(faults, process, armed, seconds=60):
    wait_until(lambda: armed - faults.alive(process), seconds, f"{process} to reach the point")


def kill_cell(faults, process, line, way):
    """One daemon killed once, at one point, on the way up or down."""
    with Cell(faults, f"{way:4} {process:14} {' '.join(line.split()[:1])}") as cell:
        enclave = opened(faults) if way == "down" else None
        armed = faults.arm(process, line)
        enclave = faults.destroy() if way == "down" else faults.create()
        hit(faults, process, armed)
        cell.ended = faults.settle(enclave, ("closed",) if way == "down" else ("open", "closed"))
        faults.check(enclave)
    closed(faults, enclave)


def chain(faults, points, order):
    """enclaved is killed at each of these points in turn; after each the engine finds its way by the store alone. Each life is armed with the points that
    were not reached yet: which ones were, the journal says."""
    process, open_points = "enclaved", list(points)
    cursor = faults.cursor("ctl")
    seen = faults.arm(process, "\n".join(f"{p} kill" for p in open_points))
    faults.write(process, "\n".join(f"{p} kill" for p in open_points))
    # The first kill may come while the order is being answered: it is given again beside the loop that disarms.
    ordered = concurrent.futures.ThreadPoolExecutor(1).submit(order)
    start, end = time.monotonic(), time.monotonic() + 10 + 6 * len(points)
    while open_points:
        wait_until(lambda: seen - faults.alive(process) or time.monotonic() > end, end - time.monotonic() + 1, "a kill", every=0.02)
        assert time.monotonic() < end, f"never reached: {open_points}"
        for point in faults.reached("ctl", process, cursor):
            if point in open_points:
                open_points.remove(point)
                faults.note(f"chain {process} {point}", "went on", start)
                start = time.monotonic()
        if open_points:
            faults.write(process, "\n".join(f"{p} kill" for p in open_points))
        else:
            faults.clear(process)
        seen = wait_until(lambda: faults.alive(process) - seen, 20, "enclaved to start again", every=0.02)
    return ordered.result(60)


def run_chain(faults, up, down):
    with Cell(faults, f"chain up {up}") as cell:
        enclave = chain(faults, [f"step.{row}.{up}" for row in STEPS], faults.create)
        cell.ended = faults.settle(enclave, ("open",))
        faults.check(enclave)
    with Cell(faults, f"chain down {down}") as cell:
        chain(faults, [f"step.{row}.{down}" for row in reversed(STEPS)], faults.destroy)
        cell.ended = faults.settle(enclave, ("closed",))
        faults.check(enclave)


def test_enclaved_killed_in_every_row_up_and_down_goes_on_invariant_01_invariant_05(faults):
    run_chain(faults, "after_do", "after_undo")


@pytest.mark.nightly
@pytest.mark.parametrize("up,down", [("before_do", "before_undo"), ("after_intent", "after_undo"), ("before_check", "before_undo")])
def test_enclaved_killed_in_every_row_at_other_places(faults, up, down):
    run_chain(faults, up, down)


@pytest.mark.nightly
@pytest.mark.parametrize("place", UP)
@pytest.mark.parametrize("row", STEPS)
def test_enclaved_killed_on_the_way_up(faults, row, place):
    kill_cell(faults, "enclaved", f"step.{row}.{place} kill", "up")


@pytest.mark.nightly
@pytest.mark.parametrize("place", DOWN)
@pytest.mark.parametrize("row", STEPS)
def test_enclaved_killed_on_the_way_down(faults, row, place):
    kill_cell(faults, "enclaved", f"step.{row}.{place} kill", "down")


@pytest.mark.parametrize("process,line,way", OTHERS)
def test_another_daemon_killed(faults, process, line, way):
    kill_cell(faults, process, line, way)


@pytest.mark.nightly
@pytest.mark.parametrize("process,line,way", OTHERS_NIGHTLY)
def test_another_daemon_killed_at_any_of_its_points(faults, process, line, way):
    kill_cell(faults, process, line, way)


def fail_cell(faults, row, place):
    with Cell(faults, f"fail enclaved step.{row}.{place}") as cell:
        armed = faults.arm("enclaved", f"step.{row}.{place} fail")
        enclave = faults.create()
        cell.ended = faults.settle(enclave, ("closed",))
        faults.check(enclave)
        assert armed & faults.alive("enclaved"), "a failure is no crash"
        steps_seen = {s["step"]: s["outcome"] for s in faults.enclave()["steps"]}
        assert steps_seen[row] == "undone"
    # The point stays armed for that life.
    faults.lab.run("ctl", "systemctl", "kill", "-s", "KILL", "enclaved")
    faults.answers()


@pytest.mark.parametrize("row", FAILS)
def test_a_row_that_fails_is_walked_down_from(faults, row):
    fail_cell(faults, row, "after_do")


@pytest.mark.nightly
@pytest.mark.parametrize("place", ("before_do", "after_do", "before_check"))
@pytest.mark.parametrize("row", STEPS)
def test_any_row_that_fails_is_walked_down_from(faults, row, place):
    fail_cell(faults, row, place)


# --- hosts and networks -------------------------------------------------------------------------------------------------

def in_step(faults, *rows):
    """Waits until the enclave is on its way through one of these rows; returns its compute nodes."""
    wait_until(lambda: faults.enclave().get("state") == "creating" and faults.enclave().get("step") in rows, 40, f"step {rows}", every=0.02)
    return [n["name"] for n in faults.enclave()["nodes"]]


def says_what_it_waits_for(faults, word):
    """Invariant 8: in a `show` of that moment."""
    def said():
        waiting = faults.enclave().get("waiting") or {}
        return waiting if word in (waiting.get("for") or "") else None
    waiting = wait_until(said, 60, f"`waiting` to name {word}")
    assert waiting["next"], waiting
    return waiting


def test_a_node_cut_off_in_the_middle_is_waited_for_by_name_invariant_08(faults):
    with Cell(faults, "cut  a node in a row") as cell:
        enclave = faults.create()
        node = in_step(faults, "clean", "services")[0]
        faults.lab.lab("cut", node)
        try:
            says_what_it_waits_for(faults, node)
        finally:
            faults.lab.lab("heal", node)
        cell.ended = faults.settle(enclave)
        faults.check(enclave)
    closed(faults, enclave)


def test_the_vault_cut_off_holds_up_the_way_back_and_says_so_invariant_05_invariant_08(faults):
    with Cell(faults, "cut  the vault, way down") as cell:
        enclave = opened(faults)
        faults.destroy()
        wait_until(lambda: faults.enclave().get("state") == "closing", 20, "the way down", every=0.02)
        faults.lab.lab("cut", "vault")
        try:
            # The door is shut without the log; giving nodes back waits for it.
            wait_until(lambda: faults.enclave().get("door") == "shut", 30, "the door to shut")
            says_what_it_waits_for(faults, ":")
            assert faults.enclave()["state"] == "closing"
        finally:
            faults.lab.lab("heal", "vault")
        cell.ended = faults.settle(enclave, ("closed",))
        faults.check(enclave)


@pytest.mark.nightly
@pytest.mark.parametrize("row", ("detach", "clean", "services", "storage", "join"))
def test_the_vault_rebooted_in_the_middle_and_unsealed_again(faults, row):
    with Cell(faults, f"boot vault in {row}") as cell:
        enclave = faults.create()
        in_step(faults, row)
        faults.lab.lab("reboot", "vault")
        faults.refresh()
        faults.lab.run("vault", "enclavectl", "key", "unseal", "--json", stdin=(faults.lab.dir / "keys/root-passphrase").read_text())
        cell.ended = faults.settle(enclave)
        faults.check(enclave)
    closed(faults, enclave)


@pytest.mark.nightly
@pytest.mark.parametrize("row", ("detach", "clean", "services", "join", "prove"))
def test_the_controller_rebooted_in_the_middle(faults, row):
    with Cell(faults, f"boot ctl in {row}") as cell:
        enclave = faults.create()
        in_step(faults, row)
        faults.watch.stop()
        faults.lab.lab("reboot", "ctl")
        faults.refresh()
        faults.watch.start()
        cell.ended = faults.settle(enclave)
        faults.check(enclave)
    closed(faults, enclave)


@pytest.mark.nightly
@pytest.mark.parametrize("row", ("reserve", "drain", "detach"))
def test_slurmctld_restarted_in_the_middle(faults, row):
    with Cell(faults, f"restart slurmctld in {row}") as cell:
        armed = faults.arm("enclaved", f"step.{row}.after_do kill")
        enclave = faults.create()
        hit(faults, "enclaved", armed)
        faults.lab.run("head", "systemctl", "kill", "-s", "KILL", "slurmctld")
        faults.lab.run("head", "systemctl", "restart", "slurmctld")
        cell.ended = faults.settle(enclave)
        faults.check(enclave)
    closed(faults, enclave)
