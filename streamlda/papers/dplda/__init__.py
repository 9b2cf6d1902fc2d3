"""DP-LDA: a spectral algorithm with noise on chosen edges of its flow graph.

DeCarolis, Ram, Esmaeili, Wang, Huang (2020), "An end-to-end differentially private latent Dirichlet
allocation using a spectral algorithm", ICML (arXiv 1805.10341, versions 1 to 3) [DP-LDA].

`flow` is the graph and its configurations as data, `sensitivity` how far a document moves a node,
`moments` the estimators, `spectral` the steps without noise, `calibration` how much noise,
`release` puts it on an edge, and `configurations` (`fit`) runs all of it by `settings`.
Configuration 1 is proven private here; configurations 2 to 4 rest on claims that are not proven,
which `flow` names one by one.

Errata of the paper, and what is done here:

- Lemma 3 prints 1/(a+2) where a/(a+2) is right, a = alpha_0. Equation 7 multiplies M3 by a factor
  that its own proof of unbiasedness does not have, and equations 8 and 9 leave out the terms of
  documents with themselves that it needs: the unbiased forms are used.
- Theorem 4 counts the mixed term of M3 once; it occurs three times (`sensitivity`).
- Theorem 5 bounds M3(W, W, W) - M3'(W', W', W') by the cube of W - W', which leaves out the terms
  of first and second order. Lemma 9 gives the gap of eigenvalues the sensitivity of M2, which it
  has not. Theorem 7 reads the largest singular value of M2, which Procedure 1 does not protect.
- Topics are scaled to sum to one before they are projected; the printed scale lacks a factor.
"""
