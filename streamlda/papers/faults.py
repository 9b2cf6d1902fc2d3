"""Faults of settings and documents of the papers: rule, remedy and class of each are data."""

from streamlda import errors

_FAULTS = errors.Faults(
    {
        errors.InsufficientDataError: {
            "documents": "a mean over three different documents has fewer; add more documents",
        },
        errors.InvalidDocumentsError: {
            "fractions": "moments with a privacy bound are given fractions; pass counts of tokens, "
            "not weights",
        },
        errors.InvalidSettingError: {
            "budget": "epsilon and delta are not both given; give both, or neither for no privacy",
            "delta": "delta must be at least 10 times what the samplers take; take a larger delta "
            "or a smaller epsilon",
            "entry": "entry neighbours lack a magnitude, or say something of documents; pass a "
            "public bound on the Frobenius norm of the tensor",
            "gaussian": "the paper's Gaussian mechanism is proven for epsilon <= 1 a release only; "
            "take a smaller epsilon, or accounting='exact'",
            "grid": "values have more than 2^61 steps of the grid; take a smaller epsilon",
            "nothing left": "delta leaves nothing for the noise; raise delta",
            "order": "noise is calibrated for tensors of order 3; take a method of order 3",
            "probe": "a probe is no unit vector; divide it by its length",
            "pure": "pure epsilon has no global l1 sensitivities in this configuration; take "
            "configuration 1, or Gaussian noise",
            "rounding": "rounding costs more than 1 % of the sensitivity; use fewer cells or "
            "documents, or a larger epsilon",
            "rows": "n_max is below the number of rows; raise it",
            "samples": "the sums of a site are not those of as many clipped samples as the network "
            "has there; give the network the size of each site, and clip to the radius",
            "spaces": "sites differ in dimension or radius, or from the sizes of the network; make "
            "the network for these sites",
            "stddevs": "a site has no standard deviation > 0 and finite; give one for each",
            "symmetry": "a tensor is not symmetric, or not finite; average it over all orders of "
            "its indices, or embed it by `symmetrised`",
            "textbook": "the textbook Gaussian mechanism holds for an epsilon above 0 and up to 1 "
            "a release; use streamlda.guarantee.accounting.noise_multiplier",
            "triples": "a triple moment over words is of too many words; take a configuration that "
            "sees it through a projection (2, 3 or 4), or fewer words",
            "weights": "sites are fewer than two, or of weights not in 0..1 or not of sum 1; leave "
            "out sites of no weight, and divide each by their sum",
            "words": "sites differ in words, or from the sizes of the network; make the network "
            "for these sites",
        },
    }
)
check = _FAULTS.check
