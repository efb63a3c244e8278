"""Takes out of a text what looks like a key.

The text grows no longer; what is taken out leaves a mark.
"""

from __future__ import annotations

import re
from typing import Final

IN_ITS_PLACE: Final = "[secret]"

# Keys of Anthropic, OpenAI, Hugging Face, GitHub, GitLab, AWS, Google, Slack, Groq, xAI, NVIDIA, npm; web
# tokens and headers; private keys; values of variables named so. All are longer than what replaces them.
# The first part of a web token is bounded: a text may begin one at every word.
_SECRET = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|AKIA[A-Z0-9]{12,}"
    r"|AIza[\w-]{20,}|xox[abprs]-[\w-]{10,}|gsk_\w{16,}|(?:xai|nvapi)-[\w-]{16,}|npm_\w{16,}"
    r"|eyJ[\w-]{8,1000}+\.[\w-]{8,}\.[\w-]{8,}|Bearer +[\w.~+/=-]{16,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?:\s|\\n)*[\w+/=]{16,})+"
    r"|(?P<name>\b[A-Z0-9_]*(?:API_?KEY|TOKEN|SECRET|SECRET_ACCESS_KEY|PASSWORD)=[\"']?"
    r"|\baws_secret_access_key\s*=\s*)[\w.~+/=-]{16,}"
)


def without_secrets(text: str) -> str:
    """`text` with each of them replaced; the name of a variable stays."""
    return _SECRET.sub(lambda found: f"{found['name'] or ''}{IN_ITS_PLACE}", text)
