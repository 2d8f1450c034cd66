"""Runs on the host: answers requests about detached jobs and, forked from that, supervises one job each.

Standard library only, Python 3.8 or newer. The modules travel as one file (`executor.ssh.agent_bundle`) that is checked
against its hash and run from memory. The agent decides whether a command may start (once per job id, behind a lease
and a gate) and what is known about its end. It never guesses: an end that was not recorded stays unknown. Protocol:
docs/design/remote-jobs.md.
"""
