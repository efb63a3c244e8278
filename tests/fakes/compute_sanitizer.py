"""A stand-in for compute-sanitizer: takes its options, writes a log in its format, and runs the program.

What it writes is REPORT, a file beside it, for the tool that is asked for; a tool without one is clean.
With FAIL beside it, it ends like the real program where no target can be started.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_OPTIONS = {
    "--tool",
    "--log-file",
    "--print-limit",
    "--launch-timeout",
    "--report-api-errors",
    "--check-api-memory-access",
}


def main() -> int:
    """As the real one: its own text goes to the log only, the program's to where it was."""
    words, options = sys.argv[1:], dict[str, str]()
    while words and words[0] in _OPTIONS:
        options[words[0]], words = words[1], words[2:]
    report = "========= COMPUTE-SANITIZER\n"
    if (_HERE / "FAIL").exists():
        report += (_HERE / "FAIL").read_text()
        code = 255
    else:
        # The channel is inherited, as it is through the real program's launcher (seen with strace).
        code = subprocess.run(words, check=False, close_fds=False).returncode
        reports = json.loads((_HERE / "REPORT").read_text())
        report += reports.get(options["--tool"], "========= ERROR SUMMARY: 0 errors\n")
    Path(options["--log-file"]).write_text(report)
    return code


if __name__ == "__main__":
    sys.exit(main())
