"""Mutated files of every kind that is read: refused in one line, or read alike.

``python -m tests.fuzz --cases 1000`` runs some. A case is made of a seed and a number
alone, so ``--replay SEED:NUMBER`` runs it again.
"""
