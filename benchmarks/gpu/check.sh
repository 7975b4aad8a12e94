#!/usr/bin/env bash
# On a machine with a GPU: is it right, how fast is it, do the chapters run?
# About six minutes. Results go to $OUT, or to .gpu/out.
#     DEVICE=cpu QUICK=--quick bash benchmarks/gpu/check.sh     do the scripts run?
cd "$(dirname "$0")/../.." || exit 1
root=$PWD device=${DEVICE:-cuda} out=${OUT:-$root/.gpu/out} site=$root/.gpu/site
mkdir -p "$out"
if compgen -G ".gpu/wheels/*.whl" > /dev/null; then
    python3 -m pip install -q --no-index --no-deps --upgrade --target "$site" .gpu/wheels/*.whl
fi
export PYTHONPATH=$root:$root/benchmarks:$site PYTHONUNBUFFERED=1
export TRANSFORMER_LIB_DATA=${TRANSFORMER_LIB_DATA:-$root/.gpu/data}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
python=${PYTHON:-python3}
timeout 90 "$python" benchmarks/gpu/correct.py "$device" $QUICK 2>&1 | tee "$out/correct.txt"
timeout 240 "$python" benchmarks/gpu/bench.py --device "$device" $QUICK --out "$out/bench.json" 2>&1 | tee "$out/bench.txt"
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True timeout 40 "$python" benchmarks/gpu/bench.py \
    --device "$device" $QUICK --only "base 25000 train" --out "$out/segments.json" 2>&1 | tee "$out/segments.txt"
[ -n "$QUICK" ] || timeout 90 "$python" benchmarks/gpu/chapters.py 80 12 2>&1 | tee "$out/chapters.txt"
