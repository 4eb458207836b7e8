"""A fuzzer for everything that reads what others wrote.

    python tests/fuzz --executions 100000 --seed 7             every target, its share of the executions
    python tests/fuzz --target exports --executions 1000000    one target
    python tests/fuzz --engine atheris --target peel           guided by coverage, where atheris is installed

`targets` says what is called and what must hold, `mutate` makes inputs out of samples, `watch` sees escapes,
time and memory, `campaign` runs it. An input that failed once is kept in `corpus/`, and tried first each time.
"""
