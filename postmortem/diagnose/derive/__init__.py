"""Claims that no single line makes: by exit codes, comparisons of ranks, and silence."""
