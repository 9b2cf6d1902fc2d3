"""Topics sharpened by likelihood after the spectral start: stepwise, or over kept documents."""
