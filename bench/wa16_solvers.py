"""Private solvers compared at the same budget: one tensor, live rounds, or replayed queries.

`replayed`, unlike the others, reads every document twice: half of the total mu^2 goes to the stages
up to the pairs (whose places share it, in parallel), half to all queries of `NoisyPower`, asked of
the tensor of *all* documents through the map that the released pairs gave. So a document pays for
one stage and for all queries: together what the others pay. Its sensitivity is that of the longest
row of the map; nothing is clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import planted
from bench.kinds import Case, Figure, Json, Scenario, mark, markdown, series
from bench.private import DELTA, planted_parameters
from bench.private_contenders import halved, pairs_of
from bench.private_tasks import CORPUS_SEED, Learned, in_batches, planted_error

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.documents import DocumentBatch
    from streamlda.guarantee.noise import Noise
    from streamlda.private.settings import PrivateSettings

EPSILONS = [1.0, 10.0]
SIZES = [(1000, 10), (50, 5)]
#: Documents that the online solvers without privacy keep to begin with.
WARMUP = 10_000

PRIVATE_SOLVERS = ("whitened-tensor", "noisy-power", "simultaneous")
REPLAYED = "noisy-power, replayed"
OPEN_SOLVERS = ("whitened-tensor", "online-power")


# What is done in the child process


def solver_error(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Planted documents in memory, one pass (two for replay) by one solver."""
    from streamlda.errors import InsufficientDataError
    from streamlda.guarantee.noise import SecureNoise

    corpus = planted(parameters, CORPUS_SEED)
    documents = corpus.documents(parameters["documents"])
    meter.started()
    with meter.timed():
        try:
            if parameters["epsilon"] is None:
                found = not_private(documents, parameters, seed)
            elif parameters["solver"] == REPLAYED:
                found = replayed(documents, parameters, seed, SecureNoise())
            else:
                found = live(documents, parameters, seed)
        except InsufficientDataError:
            # Noise hid all; its reader knows the frequencies at best, here not even these.
            d = documents.n_features
            found = Learned(np.empty((0, d)), np.empty(0), np.full(d, 1 / d))
    measured = {"documents": len(documents), "topics": len(found.components)}
    return {**measured, **planted_error(corpus.components, found)}


def settings_of(parameters: Json, seed: int, **changes: Any) -> PrivateSettings:
    from streamlda.private.settings import PrivateSettings

    values = {
        "n_components": parameters["n_components"],
        "n_features": parameters["n_features"],
        "epsilon": parameters["epsilon"],
        "delta": DELTA,
        "documents_per_snapshot": parameters["documents"],
        "seed": seed,
    }
    return PrivateSettings(**{**values, **changes})


def live(documents: DocumentBatch, parameters: Json, seed: int) -> Learned:
    from streamlda.errors import InsufficientDataError
    from streamlda.learner import feed
    from streamlda.private.learner import PrivateLearner
    from streamlda.private.release_manager import ReleaseManager

    settings = settings_of(parameters, seed, solver=parameters["solver"])
    learner = PrivateLearner(settings, ReleaseManager(), vocabulary="public")
    for batch in in_batches(documents):
        feed(learner, batch)
    if learner.last is None:
        raise InsufficientDataError(f"no window was finished, got missed={learner.private.missed}")
    topics = learner.last.topics
    return Learned(topics.components, topics.alpha, topics.background)


def not_private(documents: DocumentBatch, parameters: Json, seed: int) -> Learned:
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings
    from streamlda.private.settings import ITERATIONS, PrivateSettings

    K, n, solver = parameters["n_components"], parameters["documents"], parameters["solver"]
    options: Json = {}
    if solver != "whitened-tensor":
        # As many rounds as the private twin has.
        iterations, warmup = ITERATIONS["noisy-power"], min(WARMUP, n // 10)
        rounds = K * (iterations + 1)
        options = {
            "n_restarts": PrivateSettings.__dataclass_fields__["n_restarts"].default,
            "n_iterations": iterations,
            "documents_per_round": n * 9 // 10 // rounds,
            "warmup_documents": warmup,
            "refine": False,
        }
    engine = Engine(
        EngineSettings(
            n_components=K,
            n_features=parameters["n_features"],
            solver=solver,
            seed=seed,
            **options,
        )
    )
    for batch in in_batches(documents):
        engine.add(batch)
    model = engine.snapshot()
    return Learned(model.components, model.alpha, model.background)


def replayed(documents: DocumentBatch, parameters: Json, seed: int, noise: Noise) -> Learned:
    """Return the topics of Algorithm 3 on the tensor of all documents, in released coordinates."""
    from streamlda.papers.wang_anandkumar.neighbours import DocumentTensor, Neighbours
    from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule
    from streamlda.private.power import centre_answers
    from streamlda.private.settings import NOISY_POWER
    from streamlda.private.topics import pairs_through, topics_of_eigenpairs
    from streamlda.spectral.power import DeflatedPower

    pairs_epsilon, queries_epsilon = halved(parameters["epsilon"], DELTA)
    settings = settings_of(parameters, seed, epsilon=pairs_epsilon)
    view, W = pairs_of(documents, settings, noise)
    first, pairs, t = W.T @ view.first, W.T @ pairs_through(view, W), W.shape[1]

    class Centred(DeflatedPower):
        """Takes noisy answers of E P3; the corrections for alpha_0 are post-processing."""

        def advance(self, images: Any, values: Any) -> None:
            corrected = centre_answers(images, values, self.probes, first, pairs, 1.0)
            super().advance(*corrected)

    planned = settings_of(parameters, seed, solver=NOISY_POWER)
    method = Centred(
        t, t, n_restarts=planned.n_restarts, n_iterations=planned.iterations, seed=seed
    )
    n = len(documents)
    neighbours = Neighbours("add-remove", n_documents=n, whitening=W)
    schedule = Schedule(queries_epsilon, DELTA, neighbours)
    power = NoisyPower(method, DocumentTensor(documents, n, W), schedule, noise)
    components = power.run()
    moves = neighbours.sensitivities(components.eigenvectors, values=False)
    noise_of_each = power.noise_multiplier * moves.max() * np.sqrt(t)
    turns = np.full(len(components.eigenvalues), noise_of_each)
    rng = np.random.default_rng(seed)
    topics = topics_of_eigenpairs(view, components, turns, W, 1.0, n, rng)
    return Learned(topics.components, topics.alpha, topics.background)


# What is drawn from it


def label(d: int, solver: str, epsilon: float | None) -> str:
    return f"d = {d}, {solver}, {'not private' if epsilon is None else mark(epsilon)}"


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = []
    for d, k in SIZES[1:] if quick else SIZES:
        common = planted_parameters(d, k, 20_000 if quick else 100_000)
        wanted: list[tuple[str, float | None]] = [
            (solver, epsilon) for epsilon in EPSILONS for solver in (*PRIVATE_SOLVERS, REPLAYED)
        ]
        wanted += [(solver, None) for solver in OPEN_SOLVERS]
        for solver, epsilon in wanted:
            parameters = {**common, "solver": solver, "epsilon": epsilon}
            found.append(Case(label(d, solver, epsilon), "solver_error", parameters))
    return found


def best(result: Json, of: Mapping[str, Json], key: str) -> str:
    """Return the case with the least mean of a measured value."""
    return min(of, key=lambda case: mean(series(result, case, key)))


def figures(result: Json) -> list[Figure]:
    """Return the private solver of least error, and the errors of the others over it."""
    found = []
    sizes = sorted({case["parameters"]["n_features"] for case in result["cases"].values()})
    for d in sizes:
        for epsilon in EPSILONS:
            here = {
                name: case
                for name, case in result["cases"].items()
                if (case["parameters"]["n_features"], case["parameters"]["epsilon"]) == (d, epsilon)
            }
            errors = {
                case["parameters"]["solver"]: mean(series(result, name, "l1_error"))
                for name, case in here.items()
            }
            winner = result["cases"][best(result, here, "l1_error")]["parameters"]["solver"]
            where = f"d = {d}, {mark(epsilon)}"
            found.append(Figure(f"least error, {where}", f"{winner} ({errors[winner]:.4f})"))
            others = (
                f"{solver} {error / errors[winner]:.2f}"
                for solver, error in errors.items()
                if solver != winner
            )
            found.append(Figure(f"errors over that, {where}", ", ".join(others)))
    return found


def details(result: Json) -> str:
    """Error, topics and seconds of every solver."""
    header = ["solver", "d", "epsilon", "error", "worst run", "topics published", "seconds"]
    rows = []
    for name, case in result["cases"].items():
        p = case["parameters"]
        errors = series(result, name, "l1_error")
        topics = f"{mean(series(result, name, 'topics')):g} of {p['n_components']}"
        epsilon = "not private" if p["epsilon"] is None else f"{p['epsilon']:g}"
        seconds = f"{mean(series(result, name, 'fit_seconds')):.2f}"
        size = [p["solver"], str(p["n_features"]), epsilon]
        rows.append([*size, f"{mean(errors):.4f}", f"{max(errors):.4f}", topics, seconds])
    return markdown(header, rows)


WA16_SOLVERS_TASKS = (solver_error,)

WA16_SOLVERS = [
    Scenario(
        "wa16-solvers",
        "Which private solver has the least error at the same budget: tensor, rounds or replay?",
        3,
        cases,
        figures,
        details=details,
    )
]
