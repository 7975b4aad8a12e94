#!/usr/bin/env bash
# Prepare .gpu/ in the project's root for a machine with a GPU that reaches no network:
# the corpora, and the packages it may lack. There, run: bash benchmarks/gpu/check.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p .gpu/wheels .gpu/data
cp -r "${TRANSFORMER_LIB_DATA:?the folder with the corpora}/." .gpu/data/
python3 -m pip download -q --no-deps --only-binary=:all: -d .gpu/wheels \
    sacremoses pooch platformdirs altair jsonschema jsonschema-specifications \
    referencing rpds-py drawsvg ipython jupytext markdown-it-py mdit-py-plugins \
    nbformat fastjsonschema tyro
du -sh .gpu
