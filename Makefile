# The commands of a checkout, one line for each target. `make help` lists targets and variables; tools/make_command.py
# turns the variables into options of build.py.
override SHELL := /bin/sh
# Values are text: a `$` in one is not make's. (make passes them on in MAKEFLAGS.)
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
$(foreach v,$(GIVEN),$(eval override $v := $$(value $v)))
HOST_PYTHON ?= python3
export HOST_PYTHON
override PY := .venv/bin/python
override define HAS_PYTHON
@command -v "$$HOST_PYTHON" > /dev/null || { echo "HOST_PYTHON: there is no program $$HOST_PYTHON; name Python 3.11 or newer, for example HOST_PYTHON=python3.11" >&2; exit 4; }

endef
override RUN := $(HAS_PYTHON)@"$$HOST_PYTHON" tools/make_command.py

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev list show check lock outdated plan render image verify run shell push pull save bundle load patches engine-start engine-stop engine-status engine-remove clean test test-all unit lint goldens reference docs relock lint-run doctor diff sbom report new index search

help: ## print targets and variables
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{line = sprintf("  make %-14s", $$1); n = split($$2, words, " "); \
	  for (i = 1; i <= n; i++) { if (length(line " " words[i]) > 79) { print line; line = sprintf("%21s", "") } line = line " " words[i] } \
	  print line}' Makefile
	@echo "variables, of the commands that take them:"
	@echo "  target     PROFILE=name CANN=8.5.0 CHIP=910b OS=ubuntu22.04 PYTHON=3.11"
	@echo "             ARCH=amd64 BASE=standin PIN='name==version …' FORCE=1"
	@echo "  sources    SOURCES=release|release:name,name GIT_MIRROR=folder PATCHES=folder"
	@echo "             SRC_<component>=folder VERL_PATH=folder WHEELHOUSE=folder"
	@echo "  build      WITH=assemble|bake BUILDER=buildx-builder CACHE=reference LOCKED=1"
	@echo "             NO_STAMP=1 KEEP_GOING=1 REUSE=1 PUSH=1 MAX_JOBS=compilers-at-once"
	@echo "  verify     LEVEL=train RECORD=file AGAINST=image"
	@echo "  run        NPUS=0,1|none CMD='…' NETWORK=host INTERFACE=eth0 RUNTIME=ascend"
	@echo "             PRINT=1 FORMAT=compose|pod|job|raycluster|rayjob NODES=4"
	@echo "  ship       REGISTRY=host/path ATTACH=1 SIGN=key UNVERIFIED=1 PARTIAL=1"
	@echo "             OUTPUT=file-or-place SINCE=older-bundle-or-image FILE=archive"
	@echo "  others     FORMAT=spdx|provenance|markdown KIND='wheels …' SETTINGS=1"
	@echo "             FILE=compose-file ARGS='more options of build.py' CATALOG=folder"
	@echo "             CANNERY_CACHE=folder HOST_PYTHON=python3"
	@echo "A command that fails has its own exit code (README, Exit codes). make prints it"
	@echo "as Error N, and itself ends with 2."

setup: ## make .venv from the locked requirements
	$(HAS_PYTHON)@"$$HOST_PYTHON" tools/setup_venv.py
setup-dev: ## the same, with what tests and linters need
	$(HAS_PYTHON)@"$$HOST_PYTHON" tools/setup_venv.py --dev
list: ## list the profiles
	$(RUN) list
show: ## show PROFILE, or with SETTINGS=1 the settings of this machine
	$(RUN) show
new: ## write a new profile, PROFILE, as a copy of another one (ARGS='--like quickstart')
	$(RUN) new
check: ## report whether the versions of PROFILE work together, and why not
	$(RUN) check
lock: ## resolve PROFILE (or all profiles) into images/locks
	$(RUN) lock
outdated: ## report newer versions than PROFILE's lock has, and which of them work together
	$(RUN) outdated
plan: ## show the layers of PROFILE's image
	$(RUN) plan
render: ## write PROFILE's Dockerfile, bake file and wheels to out/
	$(RUN) render
image: ## check, build and verify the image of PROFILE
	$(RUN) image
verify: ## run the verify script in PROFILE's image; AGAINST=image: what differs in an image made by hand; RECORD=file: a proof
	$(RUN) verify
run: ## start a container of PROFILE with this host's NPUs (CMD='…'; PRINT=1: print the command)
	$(RUN) run
shell: ## open a shell in a new container of PROFILE with this host's NPUs (CMD='…': run that in it)
	$(RUN) shell
lint-run: ## report mistakes in a docker run command (CMD='docker run …'), or in a compose file or manifest (FILE=compose.yaml)
	$(RUN) lint-run
doctor: ## report what this host has and what it is missing for NPUs (PROFILE=… for its image)
	$(RUN) doctor
push: ## push PROFILE's verified image to REGISTRY (ATTACH=1: with its bill and provenance; SIGN=key: signed with cosign)
	$(RUN) push
pull: ## pull the image of PROFILE's plan from REGISTRY
	$(RUN) pull
index: ## write what REGISTRY has, as JSON and as a page, to out/index
	$(RUN) index
search: ## list the images of REGISTRY that hold packages (ARGS='vllm>=0.20'; CHIP=a3)
	$(RUN) search
save: ## the same as bundle
	$(RUN) save
bundle: ## write PROFILE's image to OUTPUT, a file with its own loader (SINCE=…: only the layers that are new since that)
	$(RUN) bundle
load: ## load FILE, which bundle or save wrote
	$(RUN) load
diff: ## report what differs between two images, ARGS='OLD NEW': profiles, REVISION:PROFILE, locks, manifests, images
	$(RUN) diff
report: ## write a page about PROFILE's image to out/reports (AGAINST=what diff takes: what changed; FORMAT=markdown)
	$(RUN) report
sbom: ## print the bill of materials of PROFILE's image as CycloneDX (FORMAT=spdx: as SPDX; OUTPUT=file: into a file)
	$(RUN) sbom
patches: ## list the patch sets, or what ARGS names: ARGS='summary verl-npu', 'port REPO FROM TO', 'new REPO --tree DIR'
	$(RUN) patches
engine-start: ## start a Docker engine of the distribution's packages, without installing it (root; ARGS=--upgrade: the newest)
	$(RUN) engine-start
engine-stop: ## stop that engine; its images stay
	$(RUN) engine-stop
engine-status: ## show whether that engine runs, and where its data is
	$(RUN) engine-status
engine-remove: ## stop that engine and remove its images and packages
	$(RUN) engine-remove
clean: ## show what Cannery keeps on disk, or remove KIND='trials wheels …' (ARGS='--older-than 7d --keep 3')
	$(RUN) clean
test: lint ## lint, the tests that need no engine, then build and verify quickstart; starts that engine where none answers
	@$(PY) -m pytest -n 2 -m 'not engine' && $(PY) -m pytest -m 'engine and quick'
test-all: setup-dev ## the long tests of an engine, which `make test` leaves out
	@$(PY) -m pytest -m 'engine and not quick'
unit: setup-dev ## the tests that need no engine
	@$(PY) -m pytest -n 2 -m 'not engine' tests/unit tests/golden tests/edge
lint: setup-dev ## ruff, mypy, import-linter, shellcheck (hadolint runs in the golden tests)
	@.venv/bin/ruff check -q . && .venv/bin/ruff format -q --check . && .venv/bin/mypy --no-error-summary && .venv/bin/lint-imports --no-logo && .venv/bin/shellcheck templates/tools/*.sh .ci/run
goldens: setup-dev ## rewrite the golden files, on purpose
	@$(PY) -m pytest tests/golden --rewrite-goldens
reference: setup ## rewrite docs/reference from the parser, the models and the locks
	@$(PY) tools/reference.py
docs: setup-dev ## build the documentation into out/docs, strict
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict --site-dir out/docs && echo out/docs/index.html
relock: setup ## rewrite requirements.txt and requirements-dev.txt from pyproject.toml
	@$(PY) tools/relock.py
