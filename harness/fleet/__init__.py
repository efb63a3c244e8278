"""Several graders behind the interface of one: a process per GPU, on this machine or on many."""
