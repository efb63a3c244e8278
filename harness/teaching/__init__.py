"""Writing and refining skills with a teacher model, judged by what students' projects do.

The teacher never sees a task, reply or result of the test split, and the version that is kept is the best
on the selection split, never the last.
"""
