# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
# The figures of every target that measures are written to build/<target>.json.
BUILD := build

.PHONY: install run test lint bench planner-bench fuzz calibrate lab lock clean

install: $(STAMP)

# Compiled once, because a service that is started again should not compile anew where Python may not cache.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check uv
	$(BIN)/uv pip install -q -p $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	$(BIN)/uv pip install -q -p $(BIN)/python --no-deps -e .
	$(BIN)/python -m compileall -q agent executor experiments state
	@touch $@

run: $(STAMP)  ## install, then a whole study on the simulated pool
	$(BIN)/tuneloop demo demo/

# Two processes on two cores. Some tests run real servers, kills and outages against the clock; what fails beside
# another test is tried once more alone, and has to pass then.
test: lint  ## every check and every test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile || { \
	  echo "failures beside other tests; once more, alone:"; \
	  $(BIN)/python -m pytest -q --lf --lfnf=none; }

lint: $(STAMP)
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(STAMP)
	@mkdir -p $(BUILD)
	$(BIN)/python -m tests.bench --out $(BUILD)/bench.json

N ?= 300
fuzz: $(STAMP)  ## kill the service N times at random instants
	@mkdir -p $(BUILD)
	$(BIN)/python -m tests.bench.fuzz --kills $(N) --out $(BUILD)/fuzz.json

calibrate: $(STAMP)  ## the serving model against the field record
	@mkdir -p $(BUILD)
	$(BIN)/python -m executor.simulated.calibrate --out $(BUILD)/calibrate.json

lab: $(STAMP)  ## a small study on a real SGLang pair behind a real router and sshd (3 GB, outside the repository)
	@mkdir -p $(BUILD)
	rm -rf $(BUILD)/lab
	tests/lab/install.sh
	$(BIN)/python -m tests.lab.run --folder $(BUILD)/lab --out $(BUILD)/lab.json

planner-bench: $(STAMP)  ## the planner against search at equal budget
	@mkdir -p $(BUILD)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench.planner --out $(BUILD)/planner-bench.json

lock:  ## resolve the dependencies again
	$(BIN)/uv pip compile -q pyproject.toml --group dev --universal --generate-hashes --no-header -o requirements.lock
	$(BIN)/uv pip compile -q pyproject.toml --extra postgres --universal --generate-hashes --no-header -c requirements.lock -o docker/requirements.lock
	echo 'hatchling>=1.33' | $(BIN)/uv pip compile -q - --universal --generate-hashes --no-header -o docker/build.lock

clean:
	rm -rf .venv build demo
