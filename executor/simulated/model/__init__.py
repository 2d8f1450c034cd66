"""The serving model: documented equations in virtual time. No I/O, no clock; randomness only from a given seed.

docs/serving-model.md derives the equations and says which record each parameter was fitted on.
"""
