# Everything runs in .venv, which the first target makes by itself: git, make and Python >= 3.11 are enough.
# The first `make test` of a machine builds a Kubernetes control plane as well, and the first `make test-go` Helm,
# Prometheus, Kubernetes' own suite and programs on client-go: tests/kit/building.py.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.made
ARGS ?=
NAME ?=
# Two processes a core, since most tests wait; each takes the next test when it is done with one.
SIDE_BY_SIDE := -n $(shell echo $$(( 2 * $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) ))) --dist loadgroup --no-loadscope-reorder

# Bytecode is kept, and apart from the tree: the tests start hundreds of short programs.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode

# Says where the kube-controller-manager of the tests is, if it is built.
BUILT := from tests.cluster.control_plane.binaries import wanted; \
	path = wanted().programs["kube-controller-manager"]; \
	print(f"--controller-manager={path}" if path.is_file() else "")

.PHONY: help install demo jobs run test test-quick test-go test-scheduled node test-bare browser test-oldest test-clients test-programs test-connector test-ray cluster fix check hooks dashboards bench calls throughput proxy proxied held processes tasks wake looking faults soak storm days figures clean
.PHONY: chart pages installer audit pins archives image-tree

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

install: $(STAMP) ## make .venv with everything in it; every other target does so by itself

demo: $(STAMP) ## compare plain retries with the gate over real HTTP; writes build/demo.svg
	$(BIN)/backoff-ctrl demo $(ARGS)

jobs: $(STAMP) ## compare the Job controller alone with the operator, on Jobs under a full quota; writes build/jobs.svg
	$(BIN)/backoff-ctrl demo --jobs $$($(BIN)/python -c '$(BUILT)') $(ARGS)

run: $(STAMP) ## keep a workload going through the gate, with a table that refreshes and a live page; Ctrl-C ends it
	$(BIN)/backoff-ctrl demo --keep-going $(ARGS)

test: $(STAMP) ## run the suite, on the sandbox and a real Kubernetes, with branch coverage of the engine by its own tests, two processes a core
	$(BIN)/python -m pytest -m 'not go and not scheduled and not node' $(SIDE_BY_SIDE) --cache-clear --cov --cov-report= --cov-fail-under=0 $(ARGS) || { test $$? -eq 1 && $(BIN)/python -m tools.flaky; }
	$(BIN)/coverage report
	@echo "pragmas that exempt lines of the engine: $$(grep -rc 'pragma: no' backoff_ctrl/engine --include='*.py' | awk -F: '{n += $$2} END {print n}')"
	@cat build/left-out.txt

# Nothing is built for these, so that a process takes whole modules: to hand out 7,700 tests one by one costs more than many of them.
test-quick: $(STAMP) ## run what needs neither a real Kubernetes nor a second: sandbox only, fewer drawn examples, no coverage
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(BIN)/python -m pytest -m 'not real and not long and not node' $(SIDE_BY_SIDE) --dist loadfile $(ARGS)

test-go: $(STAMP) ## run the rest of the suite: Helm, Prometheus, Kubernetes' own suite, programs on client-go, kubectl on both servers, wheel and image
	$(BIN)/python -m pytest -m go $(SIDE_BY_SIDE) --cache-clear $(ARGS) || { test $$? -eq 1 && $(BIN)/python -m tools.flaky; }

test-scheduled: $(STAMP) ## run what takes minutes and rarely changes: whole storms, attacks, other versions of clients, the tests' own tools; a scheduled workflow does so
	$(BIN)/python -m pytest -m scheduled $(SIDE_BY_SIDE) --cache-clear $(ARGS) || { test $$? -eq 1 && $(BIN)/python -m tools.flaky; }

node: $(STAMP) ## run the product on a real node with real containers, as root; NAME=helm plays one part, NAME=up starts the node only
	@$(BIN)/python -m tests.node "$(NAME)" $(ARGS)

test-bare: ## run `make test` as on a new machine: with empty caches, of Go, too; a scheduled workflow does so
	folder=$$(mktemp -d) && trap 'chmod -R u+w "$$folder"; rm -rf "$$folder"' EXIT && \
		XDG_CACHE_HOME="$$folder" GOCACHE="$$folder/go-build" GOMODCACHE="$$folder/go-mod" $(MAKE) test

browser: $(STAMP) ## install a browser for the tests of the page, where there is none: as root with apt, else with npm
	@$(BIN)/python -m tests.kit.browser

test-oldest: $(STAMP) ## run the tests of the cluster against the oldest Kubernetes that is supported
	BACKOFF_TEST_BED=oldest $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/cluster $(ARGS)

test-clients: $(STAMP) ## run the tests of the gate on every version of the official clients that is supported, 3 of them on a real Kubernetes
	$(BIN)/python -m tests.generations $(ARGS)

test-programs: $(STAMP) ## run real programs (Airflow, kopf, KubeSpawner, ...) against a full quota on a real Kubernetes; writes docs/programs.md
	$(BIN)/python -m tests.programs $(ARGS)

test-connector: $(STAMP) ## run 200 tasks through a real connector of flytekit, the manager killed and the connector stopped on the way
	$(BIN)/python -m tests.programs.connector $(ARGS)

test-ray: $(STAMP) ## run tasks as jobs of a real Ray, the manager and the head killed meanwhile; writes docs/ray-jobs.md
	$(BIN)/python -m tests.programs.ray_jobs $(ARGS)

cluster: $(STAMP) ## start a Kubernetes control plane and say how to reach it; Ctrl-C ends it
	@$(BIN)/python -m tests.cluster

fix: $(STAMP) ## format the code, and mend what the linter can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

hooks: $(STAMP) ## run `make check` before each commit
	$(BIN)/pre-commit install

check: $(STAMP) ## formatting, lint, types, import rules, plain words, generated pages; licences and, where osv.dev answers, audit of what is shipped
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.words
	$(BIN)/python -m tools.pages --check
	$(BIN)/python -m tools.shipped --check --pins build/shipped.txt
	@$(BIN)/python -m tools.audit --if-reachable build/shipped.txt

chart: dashboards pages ## bring the chart in line: its copies of dashboards and rules, the table of values in its README

pages: $(STAMP) ## write anew what is generated of the pages: tables, diagrams, what the sandbox promises
	$(BIN)/python -m tools.pages

installer: $(STAMP) ## render the chart as one file, build/install.yaml, with the helm that the tests build
	$(BIN)/python -m tests.cluster.shipping.helm build/bin
	$(BIN)/python -m tools.installer --helm build/bin/helm $(ARGS)

archives: $(STAMP) ## all of a release but the image, in dist/: wheel, sdist, chart, install.yaml, SBOM; the same commit makes the same bytes
	$(BIN)/python -m tests.cluster.shipping.helm build/bin
	$(BIN)/python -m tools.archives --helm build/bin/helm

image-tree: $(STAMP) ## what the image contains, as a folder: build/image
	rm -rf build/image
	sh tools/image_tree.sh build/image
	@du -sm build/image

pins: $(STAMP) ## write anew the hashes of what the image ships and is built with: tools/pins
	$(BIN)/python -m tools.shipped --check --pins build/image.txt
	echo hatchling > build/build.txt
	$(PYTHON) -m venv build/pip-tools
	build/pip-tools/bin/pip install --quiet --disable-pip-version-check pip-tools==7.6.2
	mkdir -p tools/pins
	for each in image build; do \
		echo "# Made by \`make pins\` of constraints.txt: the hashes of all wheels of these versions." > build/$$each.pins; \
		build/pip-tools/bin/pip-compile --quiet --generate-hashes --allow-unsafe --no-header --no-annotate --strip-extras \
			--no-emit-find-links --no-emit-index-url -c constraints.txt -o - build/$$each.txt >> build/$$each.pins; \
		mv build/$$each.pins tools/pins/$$each.txt; \
	done

audit: $(STAMP) ## ask a public database for known vulnerabilities of what is shipped; fails where it can't be asked
	$(BIN)/python -m tools.shipped --check --pins build/shipped.txt
	@$(BIN)/python -m tools.audit build/shipped.txt

dashboards: $(STAMP) ## write the Grafana dashboards, the alerts and the recording rules anew, in dashboards/ and the chart's copies
	$(BIN)/python -m dashboards $(ARGS)
	cp dashboards/backoff-ctrl-*.json dashboards/rules.yaml dashboards/alerts.yaml helm/backoff-ctrl/files/

throughput: $(STAMP) ## creates through the gate against the same client without it, on a real API server
	$(BIN)/python benchmarks/gate_throughput.py $(ARGS)

proxy: $(STAMP) ## the sidecar against kubectl proxy: requests per second, latency, CPU and memory, in turn
	$(BIN)/python -m benchmarks.proxy $(ARGS)

proxied: $(STAMP) ## creates through the sidecar on a real API server: rate, latency, wake-up, and what 1,000 held ones cost
	$(BIN)/python -m benchmarks.proxied_creates $(ARGS)

held: $(STAMP) ## 1,000 creates held by the sidecar: their memory and order, and that none is lost or doubled when things end
	BACKOFF_TEST_HELD=1000 $(BIN)/python -m pytest tests/cluster/proxying/test_crowds.py $(ARGS)

processes: $(STAMP) ## four processes and one quota: refusals and fairness of plain retries, gates, and one sidecar between them
	$(BIN)/python -m benchmarks.processes $(ARGS)

tasks: $(STAMP) ## the trace as tasks of four types on a real API server, the manager killed five times; what 1,000 in flight cost
	$(BIN)/python -m benchmarks.task_load $(ARGS)

bench: $(STAMP) ## measure decisions per second and bytes per waiter; writes build/bench.json
	$(BIN)/python benchmarks/bench.py $(ARGS)

calls: $(STAMP) ## how many functions of ours one create calls, in how many modules; ARGS=--list names them
	$(BIN)/python -m benchmarks.calls $(ARGS)

wake: $(STAMP) ## how soon a waiting create goes in once room is made, on a real API server; writes build/wake.json
	$(BIN)/python -m benchmarks.wake $(ARGS)

looking: $(STAMP) ## what status, metrics and the live page cost at 10,000 namespaces and 100,000 waiting creates
	$(BIN)/python -m benchmarks.status $(ARGS)

soak: $(STAMP) ## ten minutes of mixed load on the sandbox: memory stays flat, and nothing is left in the end
	$(BIN)/python -m benchmarks.soak $(ARGS)

storm: $(STAMP) ## 64 threads and 64 tasks create pods while all that can go wrong does, 20 seeds: none is lost or doubled
	$(BIN)/python -m tests.gating.storm.run $(ARGS)

days: $(STAMP) ## random days of the engine, of each kind: lost watches, late news, recounts that lie; ARGS="--seeds 20000 --kind lying"
	$(BIN)/python -m tests.engine.days $(ARGS)

faults: $(STAMP) ## break a real Kubernetes in every way that is tested; writes docs/reliability.md
	$(BIN)/python -m pytest tests/cluster -k test_faults_of $(ARGS)
	$(BIN)/python -m tools.pages --faults

figures: $(STAMP) ## the numbers of the README, in virtual time; writes build/figures.json
	$(BIN)/python -m backoff_ctrl.k8s.lab.replay.figures $(ARGS)

clean: ## remove what was built, .venv included
	rm -rf .venv build dist

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed: make PYTHON=python3.12 ...")'
	@echo "This makes .venv with everything in it: a minute or two, without a word."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
