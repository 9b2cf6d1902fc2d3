"""Imtiaz & Sarwate (2018): algorithms on simulated sites."""
