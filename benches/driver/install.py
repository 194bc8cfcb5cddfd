"""Getting ready: the Rust bench, and the peers that can be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from driver.catalogue import OURS, PEERS, Language

PROBES = {
    "mlx": "import mlx.core",
    "pocl": """
import pyopencl
platforms = [platform.name for platform in pyopencl.get_platforms()]
assert "Portable Computing Language" in platforms, f"not among {platforms}"
""",
}
PACKAGES = {"mlx": ["numpy", "mlx[cpu]"], "pocl": ["numpy", "pyopencl"]}
DEBIAN = ["pocl-opencl-icd", "ocl-icd-opencl-dev"]


@dataclass
class Commands:
    """How to run each peer, and why some cannot be run."""

    found: dict[tuple[Language, str], list[str]] = field(default_factory=dict)
    missing: dict[tuple[Language, str], str] = field(default_factory=dict)


def prepare(root: Path, languages: set[Language], *, smoke: bool) -> Commands:
    """Build, install and look up what is needed; a smoke run installs nothing."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    commands = Commands()
    if "rust" in languages:
        binary = build(root, target, "checked" if smoke else "release")
        for peer in PEERS["rust"]:
            commands.found["rust", peer] = [str(binary), peer]
    if "python" in languages:
        script = str(root / "benches" / "python" / "bench.py")
        for peer in PEERS["python"]:
            python, why = interpreter(peer, target / "bench-venv", smoke=smoke)
            if why:
                commands.missing["python", peer] = why
            else:
                commands.found["python", peer] = [python, script, peer]
    return commands


def build(root: Path, target: Path, profile: str) -> Path:
    """Build the Rust bench and return where it is."""
    print("building clika-bench", file=sys.stderr)
    command = ["cargo", "build", "--quiet", "--package", "clika-bench", "--profile", profile]
    subprocess.run(command, cwd=root, check=True)
    return target / profile / "clika-bench"


def interpreter(peer: str, venv: Path, *, smoke: bool) -> tuple[str, str]:
    """Return the Python that has the peer and no reason, or why there is none."""
    if peer == OURS:
        return sys.executable, failure(sys.executable, "import clika_runtime")
    if peer not in PROBES:
        return sys.executable, ""
    python = str(venv / "bin" / "python")
    if not smoke and failure(python, PROBES[peer]):
        add(peer, venv)
    return python, failure(python, PROBES[peer])


def failure(python: str, code: str) -> str:
    """Return the last line of what goes wrong when `code` runs; empty if it works."""
    if not Path(python).exists():
        return "not installed"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines() or ["it fails without a word"]
    return lines[-1] if done.returncode else ""


def add(peer: str, venv: Path) -> None:
    """Install a peer where that is possible; the probe tells afterwards whether it worked."""
    print(f"installing {PEERS['python'][peer]}", file=sys.stderr)
    python = venv / "bin" / "python"
    if not python.exists():
        attempt([sys.executable, "-m", "venv", str(venv)])
    attempt([str(python), "-m", "pip", "install", "--quiet", *PACKAGES[peer]])
    if peer == "pocl" and os.geteuid() == 0 and shutil.which("apt-get"):
        attempt(["apt-get", "update", "-qq"])
        attempt(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *DEBIAN])


def attempt(command: list[str]) -> None:
    """Run a command that may fail; its errors are shown."""
    if Path(command[0]).exists() or shutil.which(command[0]):
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
