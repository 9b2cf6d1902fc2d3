"""DP-LDA (DeCarolis et al. 2020): a spectral algorithm with noise on edges of its flow graph."""
