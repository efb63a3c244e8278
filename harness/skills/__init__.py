"""Agent Skills: reading them, judging them by the specification, building the code that they show.

Owns: SKILL.md and the files beside it. Does not own: how a skill reaches a student (prompts.py).
Invariant: reading a skill never runs anything of it.
"""
