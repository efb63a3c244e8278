"""report.json and its published JSON Schema.

Every report.json validates against the schema of its schema_version.

`python -m harness.report.json_report > docs/report.schema.json` renews the published file.
"""

from __future__ import annotations

import json
from typing import Any

from harness.report.records import Summary


def report_json(summary: Summary) -> str:
    """The whole Summary; reads back with Summary.model_validate_json."""
    return json.dumps(summary.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of report.json."""
    made = Summary.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | {"title": "liftbench report"}


def schema_text() -> str:
    """The published file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
