"""Agent Skills: reading them, judging them by the specification, building the code that they show.

Reading a skill never runs anything of it.
"""
