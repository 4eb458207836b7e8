"""A fuzzer for every reader of files by others.

    python tests/fuzz --executions 100000 --seed 7             every target, its share of the executions
    python tests/fuzz --target exports --executions 1000000    one target

`targets` calls the readers and checks their results, `mutate` makes inputs out of samples, `watch` sees escapes,
time and memory, `campaign` runs it. An input that failed once is in `corpus/`, and tried first each time.
"""
