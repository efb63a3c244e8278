#!/bin/sh
# known.cu -> PTX on stdout: `sh known.sh > known.ptx`. Needs nvcc.
# The version of the PTX language is set to the first that knows sm_90, so that drivers older than this nvcc
# (before CUDA 13) take it too; the kernel uses nothing newer.
set -eu
made=$(mktemp)
trap 'rm -f "$made"' EXIT
"${NVCC:-nvcc}" -ptx -arch=compute_90 -o "$made" "$(dirname "$0")/known.cu"
sed -e '/^\/\//d' -e 's/^\.version .*/.version 7.8/' "$made"
