"""The everyday commands, each in an environment of its own: `nox` for lint and tests, `nox -s NAME`, `nox --list`."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and types."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the default tests, or those that are named after `--`."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the slow tests."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-n", "auto", "-m", "slow", "--slow", *session.posargs)


@nox.session
def cuda(session: nox.Session) -> None:
    """Run the tests that compile for a GPU, which needs none."""
    session.install("-e", ".[dev-cuda]")
    session.run("pytest", "-n", "auto", "-m", "cuda_compilers", "--slow", *session.posargs)


@nox.session
def distribution(session: nox.Session) -> None:
    """Build the wheel and the source distribution, check them, and run README in new environments with the wheel."""
    session.install("-e", ".[dev]")
    session.run("pytest", "--slow", "tests/test_distribution.py", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run the GPU tests on an emulated GPU; this needs gcc and binutils."""
    session.install("-e", ".[dev-cuda,cuda13]")
    session.run("pytest", "-n", "auto", "-m", "gpu", "--emulated-gpu", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run 20,000 random programs."""
    session.install("-e", ".[dev]")
    session.run("pytest", "tests/fuzz", "--fuzz", "20000", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site in build/site with warnings as errors, and run the gallery; `-- -b linkcheck` checks addresses."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "-n", *(session.posargs or ["-b", "html"]), "docs", "build/site")


@nox.session
def bench(session: nox.Session) -> None:
    """Compare with other systems; `-- -k hmlstm` for one comparison."""
    session.install("-e", ".[bench]")
    session.run("pytest", "bench", "--benchmark-only", *session.posargs)


@nox.session
def paper(session: nox.Session) -> None:
    """Run an experiment of the paper, such as `nox -s paper -- hmlstm --n 512`."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "bench.paper", *(session.posargs or ["--help"]))
