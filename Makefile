# Every target makes .venv first if it is missing or requirements.txt changed.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := passive
export PYTHONHASHSEED := 0
ifdef TRANSFORMER_LIB_DATA
export TRANSFORMER_LIB_DATA := $(abspath $(TRANSFORMER_LIB_DATA))
endif

.PHONY: book pdf epub serve lab test tangle lint bench train clean

book: tangle
	$(BIN)/jupyter-book build -W --keep-going .
	@echo "The book: $(CURDIR)/_build/html/index.html"

# The whole book as one file, in the site's downloads; needs Chromium.
pdf epub: book
	$(BIN)/python book/_ext/print_book.py $@

serve: book
	$(BIN)/python -m http.server --directory _build/html 8000

lab: tangle
	$(BIN)/jupyter lab index.md

# A few test files run side by side, so with one thread each.
test: .venv/ready lint
	$(BIN)/python tools/tangle.py --check
	$(BIN)/jupyter-book build -W --keep-going . ; built=$$? ; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
		-vv -n logical --maxprocesses 4 --dist loadfile ; tested=$$? ; \
	test $$built -eq 0 -a $$tested -eq 0
	$(BIN)/python book/_ext/finding.py

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check

tangle: .venv/ready
	$(BIN)/python tools/tangle.py

# Beside PyTorch, Hugging Face and CTranslate2, which it installs.
# BENCH takes options: make bench BENCH="--only greedy --threads 1"
bench: .venv/bench
	$(BIN)/python benchmarks/run.py $(BENCH)

# A small model of German to English, about two hours on two cores.
train: .venv/ready
	$(BIN)/python -m transformer_lib train --corpus multi30k \
		--languages de en --preset tiny --out _build/multi30k-de-en

clean:
	rm -rf _build

.venv/bench: .venv/ready benchmarks/requirements.txt
	$(BIN)/python -m pip install -q -r benchmarks/requirements.txt
	@touch $@

.venv/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -r requirements.txt
	$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	$(BIN)/jupytext-config --settings-file \
		.venv/etc/jupyter/labconfig/default_setting_overrides.json \
		set-default-viewer markdown
	@touch $@
