"""Settings of an engine, and the memory that follows from them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from streamlda.errors import above, at_least, between, one_of, require
from streamlda.spectral.seeds import SeedTopic, check_seeds

#: The default way from documents to topics: sum a small tensor, decompose it when topics are read.
WHITENED_TENSOR = "whitened-tensor"

#: Ways from documents to topics; the last uses fresh documents for each power iteration
#: (`streamlda.engine.power`).
SOLVERS = (WHITENED_TENSOR, "online-power")

#: Columns beyond K that the triple moment is taken through: more take time and predict no better.
TRIPLE_OVERSAMPLING = 20

#: Documents of a warm-up where the settings leave it open: of an engine that refines, which makes
#: its start of them alone, and of one that continues with sums.
REFINING_WARMUP, SUMMING_WARMUP = 20_000, 10_000

_LEFT_OPEN: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Settings of every engine, and the rules for them; `EngineSettings` describes the fields."""

    n_components: int
    n_features: int
    alpha_0: float | None = 1.0
    oversampling: int = 50
    seed: int = 0
    solver: str = WHITENED_TENSOR
    n_restarts: int
    n_iterations: int | None

    solvers: ClassVar[tuple[str, ...]] = SOLVERS

    def __post_init__(self) -> None:
        one_of(self.solvers, solver=self.solver)
        at_least(
            1,
            n_components=self.n_components,
            n_features=self.n_features,
            n_restarts=self.n_restarts,
        )
        if self.n_iterations is not None:
            at_least(1, n_iterations=self.n_iterations)
        at_least(0, oversampling=self.oversampling)
        if self.alpha_0 is not None:
            above(0, alpha_0=self.alpha_0, remedy="1.0 suits most text, None estimates it")
        at_least(0, seed=self.seed)
        between(0, 2**64 - 1, seed=self.seed)

    @property
    def working_alpha_0(self) -> float:
        """alpha_0 while documents are read: 1 if it is to be estimated afterwards."""
        return 1.0 if self.alpha_0 is None else self.alpha_0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings(TopicSettings):
    """Settings of an engine; fixed for its life.

    Parameters
    ----------
    n_components : int
        K, topics.
    n_features : int
        d, words of the vocabulary. Topics beyond this number repeat the corpus frequencies.
    alpha_0 : float or None, default 1.0
        Sum of the Dirichlet parameters; None estimates it from the eigenvalues.
    warmup_documents : int, optional
        Documents kept to find the first projection; with a refinement, to learn the spectral
        topics. By default 20000 with a refinement, else 10000.
    oversampling : int, default 50
        Columns of W beyond K for the pair moment. More of them give better projections and cost
        memory and time in proportion.
    seed : int, default 0
        Of the random projection and the restarts; 0 <= seed < 2^64.
    solver : str, default "whitened-tensor"
        How topics come from documents: one of `SOLVERS`.
    documents_per_round : int or None, default None
        n, fresh documents of each power iteration of ``online-power``. None begins with 1000 and
        lets rounds of refining grow with the stream, so that topics keep sharpening.
    n_restarts : int, default 10
        L, random starts of each component; for ``online-power``.
    n_iterations : int, default 5
        R, rounds that find a component; later rounds refine.
    refine : bool or None, default None
        Whether likelihood refines the topics once there are spectral ones
        (`streamlda.engine.refining`); not with a shared projection. None refines where that can be.
    seed_topics : sequence of SeedTopic, default ()
        The first topics are about these words (`streamlda.spectral.seeds`); K at most.
    kept_entries : int, default 0
        Counts of documents, 12 bytes each, that are kept until a source ends, which are fitted
        together then. Beyond them, and with 0, the warm-up is the first `warmup_documents`.
    """

    warmup_documents: int = _LEFT_OPEN
    documents_per_round: int | None = None
    n_restarts: int = 10
    n_iterations: int = 5
    refine: bool | None = None
    seed_topics: tuple[SeedTopic, ...] = ()
    kept_entries: int = 0

    def __post_init__(self) -> None:
        if self.warmup_documents is None:
            least = REFINING_WARMUP if self.refines else SUMMING_WARMUP
            object.__setattr__(self, "warmup_documents", least)
        TopicSettings.__post_init__(self)
        if self.documents_per_round is not None:
            at_least(1, documents_per_round=self.documents_per_round)
        at_least(1, warmup_documents=self.warmup_documents, n_iterations=self.n_iterations)
        seeds = check_seeds(self.seed_topics, self.n_components)
        object.__setattr__(self, "seed_topics", seeds)
        require(
            not self.seed_topics or self.solver == WHITENED_TENSOR or self.refines,
            f"seeded topics are neither refined nor of solver={WHITENED_TENSOR!r}",
            solver=self.solver,
            refine=self.refine,
            seed_topics=len(self.seed_topics),
            remedy="choose that solver, or refine the topics",
        )

    @property
    def refines(self) -> bool:
        """True if an engine refines where that predicts held-out documents better."""
        return self.refine is not False

    @property
    def n_columns(self) -> int:
        """Columns m of the projections; online solvers only need to span K topics once."""
        beyond = self.oversampling
        if self.solver != WHITENED_TENSOR:
            beyond = min(beyond, TRIPLE_OVERSAMPLING)
        return min(self.n_features, self.n_components + beyond)

    @property
    def n_triple_columns(self) -> int:
        """Leading columns t of the projections that the triple moment is taken through."""
        return min(self.n_columns, self.n_components + TRIPLE_OVERSAMPLING)

    @property
    def state_bytes(self) -> int:
        """Bytes of the two kept rounds: 2 x 8 (3 d + 2 d m + d t + 3 t^2 + 2 t^3).

        Of an online solver the one round and its probes: 8 (d (3 + 2 K + L) + 3 K^2 + 3 K L +
        2 t^2), with L the larger of K and `n_restarts`.

        With a refinement this is the bound while sums are taken; then it is 8 (d K + 2 d + K).
        """
        d, m, t = self.n_features, self.n_columns, self.n_triple_columns
        if self.solver != WHITENED_TENSOR:
            K = self.n_components
            L = max(K, self.n_restarts)
            return 8 * (d * (3 + 2 * K + L) + 3 * K**2 + 3 * K * L + 2 * t**2)
        return 2 * 8 * (3 * d + 2 * d * m + d * t + 3 * t**2 + 2 * t**3)
