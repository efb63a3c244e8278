#!/bin/bash
# Writes reward.json, unless liftbench or this machine has failed. The flags of `liftbench grade` that are not
# given here can be set in the environment, such as LIFTBENCH_GRADE_SANDBOX.
set -u
logs="${{HARBOR_LOGS:-/logs}}/verifier"
mkdir -p "$logs"
rm -f "$logs/reward.json"
exec liftbench grade "${{HARBOR_PROJECT:-{project}}}" --task {id} --target {target} --protocol {protocol} \
  --tasks-root "$(dirname "$0")/tasks" --rewards "$logs/reward.json" --json >"$logs/grade.json"
