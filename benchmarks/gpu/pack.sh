#!/usr/bin/env bash
# Prepare .gpu/ in the project's root for a machine with a GPU that reaches no network:
# the corpora, and wheels of the packages that it may lack, for its Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p .gpu/wheels .gpu/data
cp -r "${TRANSFORMER_LIB_DATA:?the folder with the corpora}/." .gpu/data/
platforms=(2_28_x86_64 2_27_x86_64 2_17_x86_64)
for package in altair asttokens attrs decorator docstring-parser drawsvg executing fastjsonschema \
    iniconfig ipython ipython-pygments-lexers jedi joblib jsonschema jsonschema-specifications jupyter-core \
    jupytext lazy-loader markdown-it-py matplotlib-inline mdit-py-plugins narwhals nbformat parso pexpect \
    platformdirs pluggy pooch prompt-toolkit ptyprocess pure-eval pytest referencing rpds-py sacremoses \
    stack-data traitlets typeguard tyro wcwidth; do
    compgen -G ".gpu/wheels/${package//-/_}-*.whl" > /dev/null && continue
    python3 -m pip download -q --no-deps --only-binary=:all: --python-version "${GPU_PYTHON:-3.12}" \
        "${platforms[@]/#/--platform=manylinux_}" --platform=manylinux2014_x86_64 -d .gpu/wheels "$package"
done
du -sh .gpu
