"""Test cases of skills, as upskill and agentskills.io keep them: read, judged for worth, asked and scored."""
