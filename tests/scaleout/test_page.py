"""The console lines of the page on clusters: programs take their options, and they fit together."""

import re
import shlex
from importlib.resources import files

import click
from distributed.cli.dask_ssh import main as dask_ssh

from streamlda.cli import commands

PAGE = files("streamlda").joinpath("docs/howto/cluster.md").read_text("utf-8")


def lines(program):
    """Return the arguments of the lines of the page that begin so."""
    return [shlex.split(line) for line in re.findall(rf"(?m)^\$ {program} (.*)$", PAGE)]


def fits():
    """Return the settings of the lines that fit."""
    command = commands.get_command(click.Context(commands), "fit")
    return [
        command.make_context("fit", own).params["given"].values for own in lines("streamlda fit")
    ]


def test_the_lines_for_ssh_start_the_cluster_that_is_fitted_on():
    (ssh,), (fit, _) = lines("dask ssh"), fits()
    asked = dask_ssh.make_context("dask ssh", ssh).params
    address = f"tcp://{asked['hostnames'][0]}:{asked['scheduler_port']}"
    assert (fit["cluster.dask"], asked["nthreads"]) == (address, 1)
    assert fit["source.files"] == ("/shared/articles/",)


def test_the_scheduler_on_kubernetes_is_that_of_the_cluster_that_is_made():
    (make,), (_, fit) = lines("kubectl"), fits()
    name = make[make.index("--name") + 1]
    assert fit["cluster.dask"] == f"tcp://{name}-scheduler:8786"
