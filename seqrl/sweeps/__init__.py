"""Many runs of one run file with other settings and seeds: planned, run, and told in one table."""
