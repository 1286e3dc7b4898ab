"""Logs of requests as other tools write them, on their way to our own schema.

`reading` makes one table of a log, `guessing` finds our columns among its own, `times` reads when requests came, and
`importing` checks every row and makes a trace. What is wrong is a list of `faults`: all of them, not the first.
"""
