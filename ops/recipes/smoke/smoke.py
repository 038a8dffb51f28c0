#!/usr/bin/python3
"""Write to an enclave's volume, read it back from the disk, compare. Standard library only.

    smoke.py DIR [--size-mb 16] [--keep]

Each task writes its own file, makes it durable, drops it from the page cache, reads it again and
compares the hashes: seconds on two cores, and no torch, so it also runs in a slow virtual machine.
Prints one JSON line of numbers. Exit: 0 equal · 1 different · 2 usage · 74 the volume failed.
"""
import argparse
import hashlib
import json
import os
import sys
import time

BLOCK = 1 << 20
EXIT_DIFFERENT, EXIT_IO = 1, 74


def write(path, blocks):
    """Write random blocks and make them durable; return (hash, seconds)."""
    digest, begun = hashlib.sha256(), time.monotonic()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        for _ in range(blocks):
            block = os.urandom(BLOCK)
            digest.update(block)
            if file.write(block) != BLOCK:
                raise OSError("short write")
        os.fsync(file.fileno())
        # Without this the second half would only prove that memory remembers.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.digest(), time.monotonic() - begun


def read(path):
    """Return (hash, seconds) of what the volume gives back."""
    digest, begun = hashlib.sha256(), time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.digest(), time.monotonic() - begun


def run(folder, megabytes, keep):
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    os.makedirs(folder, mode=0o750, exist_ok=True)
    path = os.path.join(folder, f"smoke-{os.environ.get('SLURM_JOB_ID', '0')}-{rank}.bin")
    try:
        wanted, write_s = write(path, megabytes)
        found, read_s = read(path)
    finally:
        if not keep and os.path.exists(path):
            os.unlink(path)
    equal = wanted == found
    print(json.dumps({"ev": "done", "rank": rank, "bytes": megabytes * BLOCK, "equal": int(equal),
                      "write_s": round(write_s, 3), "read_s": round(read_s, 3)}), flush=True)
    return 0 if equal else EXIT_DIFFERENT


def main(argv=None):
    parser = argparse.ArgumentParser(prog="smoke", description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--size-mb", type=int, default=16)
    parser.add_argument("--keep", action="store_true", help="leave the file there")
    args = parser.parse_args(argv)
    if not 1 <= args.size_mb <= 65536:
        parser.error("--size-mb must be from 1 to 65536")
    try:
        return run(args.folder, args.size_mb, args.keep)
    except OSError as error:
        # Not str(error): it would quote a path.
        print(f"smoke: the volume failed: {os.strerror(error.errno or 5)}", file=sys.stderr)
        return EXIT_IO


if __name__ == "__main__":
    sys.exit(main())
