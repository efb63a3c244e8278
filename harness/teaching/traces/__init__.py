"""Traces of coding agents: read whole, searched for errors and their fixes, condensed for a teacher."""
