#!/bin/sh
# Stands in for nvidia-container-runtime-hook: keeps what the engine asked for, and changes nothing.
# FOLDER is replaced by the test.
set -eu
state=$(cat)
bundle=$(printf %s "$state" | sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')
cp "$bundle/config.json" "FOLDER/config.json"
printf '%s\n' "$*" >"FOLDER/arguments"
