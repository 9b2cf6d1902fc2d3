"""The power methods as their papers print them, line by line on dense arrays of order 3; slow."""

import numpy as np


def _start(seed, i, d, L):
    starts = np.random.default_rng([seed, i]).standard_normal((d, L))
    return [starts[:, tau] / np.sqrt(np.sum(starts[:, tau] ** 2)) for tau in range(L)]


def _image(tensor, u):
    return np.einsum("abc,b,c->a", tensor, u, u)


def _cube(tensor, u):
    return np.einsum("abc,a,b,c->", tensor, u, u, u)


def algorithm_1(tensor, k, L, R, seed):
    """Wang & Anandkumar (2016), Algorithm 1."""
    tensor = tensor.copy()
    d = len(tensor)
    values, vectors = [], []
    for i in range(k):
        last = []
        for u in _start(seed, i, d, L):
            for _ in range(R):
                image = _image(tensor, u)
                u = image / np.sqrt(np.sum(image**2))
            last.append(u)
        best = max(range(L), key=lambda tau: _cube(tensor, last[tau]))
        values.append(_cube(tensor, last[best]))
        vectors.append(last[best])
        tensor -= values[i] * np.einsum("a,b,c->abc", vectors[i], vectors[i], vectors[i])
    return np.array(values), np.array(vectors).T


def algorithm_2(tensors, k, L, R, seed, *, xi_of_next=False):
    """Algorithm 2, of the mean tensor of each round of documents.

    Errata: the eigenvalue is that of the iterate before the last, line 6 adds x_l, and line 7 means
    xi = v_j'u_t; with `xi_of_next` line 7 is as printed.
    """
    values, vectors = [], []
    for i in range(k):
        u = None
        for _ in range(R):
            tensor = next(tensors)
            u = u or _start(seed, i, len(tensor), L)
            images = [_image(tensor, vector) for vector in u]
            lam = [_cube(tensor, vector) for vector in u]
            for tau, image in enumerate(images):
                before = image.copy() if xi_of_next else u[tau]
                for value, vector in zip(values, vectors, strict=True):
                    xi = vector @ before
                    image -= value * xi**2 * vector
                    lam[tau] -= value * xi**3
            u = [image / np.sqrt(image @ image) for image in images]
        best = int(np.argmax(lam))
        values.append(lam[best])
        vectors.append(u[best])
    return np.array(values), np.array(vectors).T


def simultaneous(tensor, k, R, seed):
    """Wang & Lu (2017): all vectors at once, made orthogonal one after the other.

    The strongest goes first; each keeps the direction of its image.
    """
    u, d = [], len(tensor)
    for start in _start(seed, 0, d, k):
        for other in u:
            start = start - (other @ start) * other
        u.append(start / np.sqrt(start @ start))
    # QR leaves the sign of a basis open; the twin takes that of LAPACK.
    basis = np.linalg.qr(np.array(_start(seed, 0, d, k)).T)[0]
    u = [vector * np.sign(vector @ basis[:, i]) for i, vector in enumerate(u)]
    for _ in range(R):
        values = [_cube(tensor, vector) for vector in u]
        order = sorted(range(k), key=lambda i: -values[i])
        turned = []
        for i in order:
            vector = _image(tensor, u[i])
            for other in turned:
                vector = vector - (other @ vector) * other
            turned.append(vector / np.sqrt(vector @ vector))
        u, values = turned, [values[i] for i in order]
    return np.array(values), np.array(u).T


def joint(tensor, start, n_steps, n_refinements):
    """All vectors at once, made orthogonal by the polar factor; then each less all others."""
    k = start.shape[1]

    def turned(vectors):
        images = [_image(tensor, vectors[:, i]) for i in range(k)]
        left, _, right = np.linalg.svd(np.array(images).T, full_matrices=False)
        return left @ right

    left, _, right = np.linalg.svd(start, full_matrices=False)
    vectors = left @ right
    for _ in range(n_steps):
        vectors = turned(vectors)
    values = np.array([_cube(tensor, vectors[:, i]) for i in range(k)])

    def residual(i):
        rest = tensor.copy()
        for j in range(k):
            if j != i:
                v = vectors[:, j]
                rest -= values[j] * np.einsum("a,b,c->abc", v, v, v)
        return rest

    for _ in range(n_refinements):
        images = [_image(residual(i), vectors[:, i]) for i in range(k)]
        vectors = np.array([image / np.sqrt(np.sum(image**2)) for image in images]).T
        values = np.array([_cube(residual(i), vectors[:, i]) for i in range(k)])
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]
