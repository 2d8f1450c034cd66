"""Programs that run on a host under the interpreter of the installed engine. Sent as files; never imported by us."""
