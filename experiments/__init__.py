"""Commands that each answer one question with the library, and their rooms.

Every module on this floor is a command: `python -m experiments.train`. The code that
commands share is in rooms:

    examples    training loops to copy from
    cli         command lines: options, output, progress
    links       links of a given rate between hosts on this machine
    processes   starting processes and talking to them
    pages       sections, tables and figures, written as HTML and Markdown
    paper       the paper's experiment: presets, sweeps, and sections on its runs
    language    language models: presets, and a section on their runs
    measured    rounds timed in several processes, and their sections of a report
    planning    clusters that are not here: assumptions and modelled times
    robustness  runs that are killed, compared, or given nonsense options
    tuning      the problems and cases behind the advice on strategies and rates
"""
