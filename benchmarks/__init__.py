"""Speed, measured: `python -m benchmarks.run` prints tables and writes one JSON file.

Each module times one thing (sampling, the machine, training, rivals) and returns a `Section`; `run` puts them
together and holds them against the targets. Everything that is compared is timed in turns in one process: only
ratios mean anything on a machine that others use too.
"""
