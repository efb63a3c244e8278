"""Traces of coding agents: reading them whole, finding what went wrong in them, telling a teacher of it.

Nothing in a trace is executed, and a trace is never read in part: what a budget leaves out is counted.
"""
