"""The rules of the tree that no type checker holds: who may import whom, and what nobody may use.

A new module fails here until it has a place in `ROOMS`. Lower rooms know nothing of higher ones.
"""

import ast
import re
import subprocess
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Modules and packages of streamlda, lowest first. Those of one line may import each other, but
#: never in a circle; all may import from the lines above.
ROOMS = [
    {"guarantee"},
    {"errors", "kernels", "utils"},
    {"container", "documents", "privacy", "texts"},
    {"spectral", "text"},
    {"model"},
    {"learner", "refinement"},
    {"engine", "private"},
    {"stream", "settings", "sites"},
    {"simulate", "storage", "scaleout"},
    {"run"},
    {"choosing", "estimator", "service", "report", "papers"},
    {"__init__"},
    {"cli"},
    {"__main__", "docs"},
]
RANK = {name: rank for rank, names in enumerate(ROOMS) for name in names}

#: The compiler is known to the one module that makes kernels.
KERNEL_MAKERS = "streamlda/kernels/__init__.py", "streamlda/kernels/machine_code.py"
KERNEL_IMPORTS = {"__future__", "math", "numpy", "streamlda.kernels"}
CONNECTOR_IMPORTS = {
    *("streamlda.errors", "streamlda.stream.credentials"),
    *("streamlda.stream.listing", "streamlda.stream.source", "streamlda.stream.event_time"),
}
#: Neither other arithmetic, nor what runs code from a file, nor a compiler elsewhere.
FORBIDDEN = re.compile(
    r"\b(fastmath|allow_pickle)=(?!False)|\b(numba|nb)[.](n?jit|g?u?vectorize|cfunc|stencil)"
    r"|from numba[.\w]* import"
)
PICKLERS = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}

TOP_LEVEL = {
    *(".ci", ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE"),
    *("Makefile", "README.md", "SECURITY.md"),
    *("pyproject.toml", "requirements.lock", "requirements-dev.lock"),
    *("streamlda", "connectors", "tests", "bench"),
}
MADE_HERE = {
    *(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".coverage"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
}
#: Places that exist on one machine only, and hosts that a user's own settings should choose.
PRIVATE = re.compile(
    r"(?<![\w}])/(work|farm|root|home|Users)/\w|\.\./shared|pypi\.org|files\.pythonhosted"
)


@cache
def imports_and_docstrings(source):
    """Return the imports, wherever in a module, and the docstrings of it and of its classes."""
    nodes = [ast.parse(source)]
    # Expressions hold neither, and a walk over all of them takes long.
    for node in nodes:
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            nodes += getattr(node, block, ())
    imported = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    described = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef)]
    return imported, [ast.get_docstring(node) or "" for node in described]


def imports(source, path):
    for node in imports_and_docstrings(source)[0]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            package = path.split("/")[: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room(path):
    return path.split("/")[1].removesuffix(".py")


def rooms_imported(source, path):
    """Return the rooms of streamlda that a module imports from, "__init__" for the facade."""
    parts = [name.split(".") for name in imports(source, path)]
    inner = [part[1] if len(part) > 1 else "" for part in parts if part[0] == "streamlda"]
    return {name if name in RANK else "__init__" for name in inner}


def is_in(name, modules):
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def wrong_imports(path, source):
    top = path.split("/")[0]
    is_product = top in ("streamlda", "connectors")
    in_kernels = path.startswith("streamlda/kernels/")
    for name in imports(source, path):
        first = name.split(".")[0]
        if (
            (top == "streamlda" and first == "streamlda_connectors")
            or (is_product and first in {*PICKLERS, "tests", "bench"})
            or (is_product and first == "numba" and not in_kernels)
            or (top == "connectors" and first == "streamlda" and not is_in(name, CONNECTOR_IMPORTS))
            or (in_kernels and path not in KERNEL_MAKERS and not is_in(name, KERNEL_IMPORTS))
        ):
            yield f"imports {name}"
    if top == "streamlda":
        if room(path) not in RANK:
            yield "has no place in ROOMS"
            return
        if room(path) == "guarantee":
            inner = [name for name in imports(source, path) if name.startswith("streamlda")]
            yield from (f"imports {n}" for n in inner if not is_in(n, {"streamlda.guarantee"}))
            return
        for other in rooms_imported(source, path) - {room(path)}:
            if other == "papers" and RANK[other] <= RANK[room(path)]:
                yield "imports papers"
            if RANK[other] > RANK[room(path)]:
                yield f"imports {other}, which is above it"


def circle(sources, by=lambda name: name):
    """Return modules that import each other in a circle, or what they belong `by`; or nothing.

    Late imports count, and so do those for type checkers.
    """
    names = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for path in sources
    }
    graph = {}
    for name, path in names.items():
        found = imports(sources[path], path)
        modules = {full if full in names else full.rpartition(".")[0] for full in found}
        others = {by(other) for other in modules & names.keys()}
        graph.setdefault(by(name), set()).update(others - {by(name)})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def tracked_files():
    """Return the files of the tree: those git tracks, or all but what is made here."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
        return [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if not any(fnmatch(part, made) for part in path.parts for made in MADE_HERE)
    ]


def read_modules(*folders):
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def test_every_module_keeps_the_rules():
    modules = read_modules("streamlda", "connectors", "tests", "bench")
    found = {path: [*wrong_imports(path, source)] for path, source in modules.items()}
    for path in modules.keys() - {*KERNEL_MAKERS}:
        found[path] += [match[0] for match in FORBIDDEN.finditer(modules[path])]
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
    assert len(found) > 10
    inner = {path: source for path, source in modules.items() if path.startswith("streamlda/")}
    # A room is a package or a module of the first level.
    assert circle(inner, by=lambda name: f"{name}.__init__".split(".")[1]) == []
    assert circle(read_modules("bench")) == []
    assert circle(read_modules("streamlda", "connectors")) == []
    for name, rest in (("allow_pickle", "=True"), ("fastmath", "={'nnan'}"), ("numba", ".njit")):
        assert FORBIDDEN.search(name + rest)


def test_docstrings_of_modules_and_classes_name_a_thing_and_ask_nothing():
    asks = re.compile(r"(What|Which|Whether|How|Where|Whose|Who|Why)\b")
    for path, source in read_modules("streamlda", "connectors", "bench", "tests").items():
        assert not [*filter(asks.match, imports_and_docstrings(source)[1])], path


def test_the_package_has_few_modules_and_what_the_guarantee_rests_on_can_be_read_in_a_day():
    assert len([*(ROOT / "streamlda").glob("[!_]*.py")]) <= 8
    modules = read_modules("streamlda/guarantee")
    assert sum(len(source.splitlines()) for source in modules.values()) <= 1500


def test_the_tree_has_no_other_names_and_no_file_names_a_machine_or_a_package_host():
    found = []
    for name in tracked_files():
        assert name.split("/")[0] in TOP_LEVEL
        text = (ROOT / name).read_text("utf-8", errors="replace")
        found += [f"{name}: {match.group()}" for match in PRIVATE.finditer(text)]
    assert found == []
    for place in ("work/x", "home/x", "Users/x", "root/x"):
        assert PRIVATE.search(f"open('/{place}')")
        assert not PRIVATE.search(f"{{base}}/{place}")
