# Every target makes .venv first if it is missing or requirements.txt changed.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := passive
export PYTHONHASHSEED := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifdef TRANSFORMER_LIB_DATA
export TRANSFORMER_LIB_DATA := $(abspath $(TRANSFORMER_LIB_DATA))
endif

.PHONY: book pdf epub serve lab test bite mutants portable bench tangle lint clean

# Collect the library, run the chapters that changed, build the site.
book: tangle
	$(BIN)/jupyter-book build -W --keep-going .
	@echo "The book: $(CURDIR)/_build/html/index.html"

# The whole book as one file, in the site's downloads; needs Chromium.
pdf epub: book
	$(BIN)/python tools/print_book.py $@

serve: book
	$(BIN)/python -m http.server --directory _build/html 8000

lab: tangle
	$(BIN)/jupyter lab index.md

# A few test files run side by side, so with one thread each.
test: lint
	$(BIN)/python tools/tangle.py --check
	$(BIN)/jupyter-book build -W --keep-going . ; built=$$? ; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
		-n logical --maxprocesses 4 --dist loadfile ; tested=$$? ; \
	test $$built -eq 0 -a $$tested -eq 0

# Break what each row of the ledger says: its test must fail.
# ONLY takes rows: make bite ONLY="masks-causal masks-padding"
bite: tangle
	$(BIN)/python tools/bite.py $(ONLY)

# Small changes to the library: a module's own tests must notice.
# ONLY takes modules and options: make mutants ONLY="masks --count 60"
mutants: tangle
	$(BIN)/python tools/mutants.py $(ONLY)

# The chapters under other kernels, threads and seeds, an hour or two.
# ONLY takes chapters and settings: make portable ONLY="loss avx2 seed+7"
portable: tangle
	$(BIN)/python tools/portable.py $(ONLY)

# Beside PyTorch, CTranslate2 and Hugging Face's model, which it installs.
# BENCH takes options: make bench BENCH="--only greedy --threads 1"
bench: .venv/bench
	$(BIN)/python benchmarks/run.py $(BENCH)

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check

tangle: .venv/ready
	$(BIN)/python tools/tangle.py

clean:
	rm -rf _build

.venv/bench: .venv/ready benchmarks/requirements.txt
	$(BIN)/python -m pip install -q -r benchmarks/requirements.txt
	@touch $@

# Importing matplotlib.font_manager makes its list of fonts, once, so that
# no chapter has to.
.venv/ready: requirements.txt pyproject.toml
	@echo "Setting up .venv: a few minutes the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --upgrade pip
	@$(BIN)/python -m pip install -q -r requirements.txt
	@$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	@$(BIN)/python -c "import matplotlib.font_manager" 2>/dev/null
	@$(BIN)/jupytext-config --settings-file \
		.venv/etc/jupyter/labconfig/default_setting_overrides.json \
		set-default-viewer markdown
	@touch $@
