"""The stages of a trial, one function each: `(context, intent) → StageResult`.

`INTENTS` holds what a stage decides before it touches anything; the runner commits it to the journal first, so that a
resumed stage acts on the same decision and not on a new one.
"""
