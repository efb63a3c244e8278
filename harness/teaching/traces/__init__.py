"""Traces of coding agents: reading them whole, finding what went wrong in them, telling a teacher of it.

Owns: events, lessons, notes, final files, the condensed text. Does not own: what a teacher is asked, or
writing a skill (skills/package.py). Invariant: nothing in a trace is executed, and a trace is never read
in part: what a budget leaves out is counted.
"""
