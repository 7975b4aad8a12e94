"""CTranslate2 alone in a process: a request a line, an answer a line.

Beside PyTorch in one process the two libraries' threads get in each
other's way, so `searches.py` starts this file as a program of its own.
"wall N" and "cpu N" answer with the seconds that N runs take on average,
"ids" with the best output of each sentence.
"""

import json
import sys
import time

import ctranslate2


def main() -> None:
    job = json.loads(sys.argv[1])
    translator = ctranslate2.Translator(
        job["folder"],
        compute_type="float32",
        inter_threads=1,
        intra_threads=job["threads"],
    )

    def search() -> list[list[str]]:
        found = translator.translate_batch(
            job["sources"],
            beam_size=job["beam_size"],
            length_penalty=0.6,
            max_decoding_length=job["pieces"],
        )
        return [one.hypotheses[0] for one in found]

    for line in sys.stdin:
        request, *times = line.split()
        if request == "ids":
            answer = search()
        else:
            clock = {
                "wall": time.perf_counter,
                "cpu": time.process_time,
            }
            began = clock[request]()
            for _ in range(int(times[0])):
                search()
            seconds = clock[request]() - began
            answer = seconds / int(times[0])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
