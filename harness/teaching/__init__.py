"""Writing and refining skills with a teacher model, judged by what students' projects do.

The teacher never sees a task, reply or result of the test split, and the candidate that is kept is the best
on selection, never the last.
"""
