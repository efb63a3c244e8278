"""Writing and refining skills with a teacher model, judged by what students' projects do.

Owns: the loop from a description, a trace or an old skill to the best candidate on a selection split.
Does not own: grading, lifts, traces, skill folders. Invariant: the teacher never sees a task, reply or
result of the test split, and the candidate that is kept is the best on selection, never the last.
"""
