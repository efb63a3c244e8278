"""Test cases of skills, in the formats of upskill and agentskills.io: read, asked, scored, counted."""
