"""The student: prompts, reading of replies and skills, feedback."""
