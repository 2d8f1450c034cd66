"""Proposers and what they are told. Proposals are data: code admits them, code judges them."""
