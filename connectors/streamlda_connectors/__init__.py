"""Where documents come from: files, standard input, and what is installed anyway."""
