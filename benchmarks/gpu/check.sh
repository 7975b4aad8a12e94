#!/usr/bin/env bash
# On a machine with a GPU: is it right, how fast is it, do the chapters run? See README.md here.
#     bash benchmarks/gpu/check.sh                                the three parts
#     bash benchmarks/gpu/check.sh NAME ...                       recorded runs instead, side by side
#     DEVICE=cpu QUICK=--quick bash benchmarks/gpu/check.sh       do the scripts run?
#     DEVICE=cpu TRIAL="--max-steps 3 …" bash benchmarks/gpu/check.sh NAME    does the run? Options in TRIAL take the place of its own.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD device=${DEVICE:-cuda} out=$(realpath -m "${OUT:-.gpu/out}") site=$root/.gpu/site
mkdir -p "$out"
if compgen -G ".gpu/wheels/*.whl" > /dev/null && [ "$device" != cpu ]; then
    python3 -m pip install -q --no-index --no-deps --upgrade --target "$site" .gpu/wheels/*.whl
fi
export PYTHONPATH=$root:$root/benchmarks:$site PYTHONUNBUFFERED=1
export TRANSFORMER_LIB_DATA=${TRANSFORMER_LIB_DATA:-$root/.gpu/data}
python=${PYTHON:-python3}
if [ $# -gt 0 ]; then  # all at once; what is cut off goes on if its .tgz is unpacked in the root
    names=("$@") running=() failed=0
    for name in "${names[@]}"; do
        (  # a signal goes to the run as well, which saves its step
            trap : TERM INT
            "$python" experiments/again.py "$name" --device "$device" $TRIAL
        ) &
        running+=($!)
    done
    keep() {  # of a finished run the record, of another the newest checkpoint
        for name in "${names[@]}"; do
            folder=runs/$name
            if [ -f "$folder/report.json" ]; then
                files="$folder/report.json $folder/log.jsonl $folder/translations.txt"
            else
                files=$(ls -t "$folder"/checkpoint-*.pt 2> /dev/null | head -1)
                [ -z "$files" ] || files="$files $(ls "$folder"/{config,tokenizer}.json "$folder"/log.jsonl 2> /dev/null)"
            fi
            [ -z "$files" ] || tar czf "$out/${name//\//-}.tgz" $files
        done
    }
    trap 'wait; keep; exit 124' TERM INT
    for one in "${running[@]}"; do wait "$one" || failed=1; done
    keep
    exit $failed
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
patience=$([ "$device" = cpu ] && echo 10 || echo 1)  # a slow machine may take longer
limited() { timeout $((patience * $1)) "$python" "${@:2}" 2>&1; }
limited 120 -m pytest tests/test_replays.py tests/test_loss.py | tee "$out/correct.txt"
limited 190 benchmarks/gpu/bench.py --device "$device" $QUICK --seconds 4 --budget 170 --out "$out/bench.json" | tee "$out/bench.txt"
limited 90 benchmarks/gpu/chapters.py $((80 * patience)) 12 ${QUICK:+masks} | tee "$out/chapters.txt"
