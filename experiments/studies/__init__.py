"""A study is one figure or table of a paper, as one YAML file: what is simulated, and what was published.

    title, source, note      what it is, where it stands in the paper, what a reader should know
    kind                     lines (default) or bars
    metrics, logarithmic     figures of summary.json, one row of plots each; those on a logarithmic axis
    x                        key, label, values, scale (linear or log), categories, apart: what is varied
    set                      overrides of all points, as on the command line: {gpu: a10g, workload.cv: 1}
    panels                   name: title, set, x, measured
    series                   name: title, system, set, measured
    rules                    list of {where: {panel, series, x}, set}, {where, skip: why} or {where, beyond: what was
                             measured}, drawn hollow; the last one counts
    printed                  panel: series: x: the number in the paper, or a list of them, one a metric; OOM
    measured                 cells that a measured row must have besides the point's own workload

Runs are kept in SIMLORA_CACHE_DIR, or outputs/cache in the project, until simlora's own files change.
"""
