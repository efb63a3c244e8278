#!/bin/sh
# PTX of one of the judge's kernel files on stdout: `sh ptx.sh known.cu > known.ptx`. Needs nvcc.
# The version of the PTX language is set to the first that knows sm_90, so that drivers older than this nvcc
# (before CUDA 13) take it too; the kernels use nothing newer.
set -eu
made=$(mktemp)
trap 'rm -f "$made"' EXIT
"${NVCC:-nvcc}" -ptx -arch=compute_90 -o "$made" "$1"
sed -e '/^\/\//d' -e 's/^\.version .*/.version 7.8/' "$made"
