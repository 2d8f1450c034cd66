"""A simulated pool: real processes with the surfaces of SGLang servers, router and load clients, numbers from a model.

Everything it says is labelled simulated. The serving model is in `model/` and does no I/O; the programs around it
only read arguments, answer HTTP and write the files that the real programs write.
"""
