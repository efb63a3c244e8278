# `make demo` and `make test` set up .venv first and say what they do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.liftbench-installed
# nvcc and the CUDA headers come from PyPI where the machine has no toolkit.
EXTRAS := $(shell command -v nvcc >/dev/null 2>&1 || test -x "$${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" && echo dev || echo dev,cuda)
DEMO_WALL_S ?= 280
BUDGET_S ?= 480
# Tests at a time; each takes up to 3 GB of memory.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 4 ? 4 : n)))
RESULTS ?= results
TRIALS ?= 500
EVERY_S ?= 20

.PHONY: help demo test test-all test-exhaustive lint size bench image setup soak wheel clean gpu-check gpu-wheels board status freeze security zoo

help:
	@echo "make demo   a lift report from recorded replies: built, checked and timed here (no GPU, no key)"
	@echo "make test   lint, types and the fast tests"
	@echo "make test-all  every sandbox, the zoo, some experts (CI runs this)"
	@echo "make test-exhaustive  the rest: all experts, every row of the zoo, all faults"
	@echo "make lint   ruff and mypy"
	@echo "make size   lines, files and shape of the code, and their bounds"
	@echo "make image  the images that Docker jobs run in (docs/sandboxes.md)"
	@echo "make bench  what the harness itself costs"
	@echo "make board  a leaderboard of studies/ and results/, into build/board"
	@echo "make status  docs/generated/status.md from results/"
	@echo "make freeze  tasks/VERSION, after a task and its version have changed"
	@echo "make security  all attacks on all sandboxes of this machine, into docs/generated/security.md"
	@echo "make zoo    projects that want to fool the judge, and honest ones, into docs/generated/security.md"
	@echo "make gpu-check  on a machine with a GPU: what only a GPU can answer, into results/"
	@echo "make soak   a fleet and the service under load and faults (an hour)"
	@echo "make gpu-wheels  what such a machine needs where it has no network, into build/gpu-wheels"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) with liftbench[$(EXTRAS)]"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "liftbench needs Python 3.11 or later: make PYTHON=python3.11 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "venv failed; on Debian: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@$(BIN)/liftbench headers cuda >/dev/null || echo "== CUDA builds use stand-ins for headers that torch asks for; later: $(BIN)/liftbench headers cuda"
	@touch $@

demo: setup
	@echo "== demo: recorded replies of a real model, graded here on the CPU target, then built for sm_90"
	@$(BIN)/python demo/run_demo.py --max-wall $(DEMO_WALL_S)

# The default tier: one real project per verdict, one sandbox, everything fast.
test: setup lint
	@echo "== tests on $$($(BIN)/python -V), $(JOBS) at a time; make test-all runs more"
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow and not alone and not docker and not browser"

# What CI runs. Tests that measure run last, one at a time.
test-all: setup lint size
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@echo "== all tests on $$($(BIN)/python -V), $(JOBS) at a time"
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not alone and not exhaustive"; side_by_side=$$?; \
	echo "== tests that measure, one at a time"; \
	$(BIN)/python -m pytest -q -m "alone and not exhaustive" && exit $$side_by_side

# The rest: the other experts, all rows of the zoo, all faults. Before an issue is closed.
test-exhaustive: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "exhaustive and not alone"; side_by_side=$$?; \
	$(BIN)/python -m pytest -q -m "exhaustive and alone" && exit $$side_by_side

lint: setup
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . && $(BIN)/mypy --no-error-summary && echo "== ruff and mypy found nothing"

size: setup
	@$(BIN)/python -m tools.size

bench: setup
	$(BIN)/python -m pytest tools/bench --benchmark-only --benchmark-columns=median,iqr,rounds -q

# BASE=, RUNTIME_BASE=, WHEELHOUSE=, IMAGE=, DOCKER=: see .ci/images.
image:
	@BASE="$(BASE)" RUNTIME_BASE="$(RUNTIME_BASE)" WHEELHOUSE="$(WHEELHOUSE)" IMAGE="$(IMAGE)" DOCKER="$(DOCKER)" .ci/images

# Goes on where the last one stopped; ONLY="aa or expert/l1/softmax" names items to run (again): docs/gpu.md.
# Where build/gpu-wheels was brought along and nothing is set up, they are used, without network.
gpu-check:
	@began=$$(date +%s); if [ -e $(STAMP) ] || ! ls build/gpu-wheels/*.whl >/dev/null 2>&1; then \
	  $(MAKE) --no-print-directory setup && python=$(BIN)/python; \
	else PYTHON=$(PYTHON) .ci/gpu-setup $(VENV)-gpu && python=$(VENV)-gpu/bin/python; fi && \
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $$python -m pytest tests/gpu -v -p pytest_benchmark.plugin -p no:cacheprovider -W default -k "$(ONLY)" --results $(RESULTS) \
	  --budget-s $$(($(BUDGET_S) + began - $$(date +%s)))

gpu-wheels: setup
	@PYTHON=$(BIN)/python .ci/gpu-wheels

# From results/ and tasks/ADMISSION.json.
freeze: setup
	@$(BIN)/python -m tools.freeze

status: setup
	@$(BIN)/python -m tools.status

board: setup
	@$(BIN)/python -m tools.study_board build/board

security: setup
	$(BIN)/python -m tools.attacks.report

# ZOO=--all: all sandboxes of this machine, not only the automatic one and local. Other options: tools/zoo/report.py.
zoo: setup
	$(BIN)/python -m tools.zoo.report $(ZOO)

# For hours: 500 trials on a fleet with a fault every 20 s, and 1,000 orders for the service, which is killed twice.
soak: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/python -m tools.soak_fleet --trials $(TRIALS) --every-s $(EVERY_S)
	$(BIN)/python -m tools.soak_serve

wheel: setup
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
