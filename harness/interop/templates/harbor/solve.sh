#!/bin/bash
set -eu
project="${{HARBOR_PROJECT:-{project}}}"
mkdir -p "$project"
cp -r "$(dirname "$0")/project/." "$project"
