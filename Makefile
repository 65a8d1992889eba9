# The user's door: one line a target. `make help` lists targets and variables; every variable is an option of build.py.
SHELL := /bin/sh
HOST_PYTHON ?= python3
PY := .venv/bin/python
RUN := $(PY) build.py

# make variable -> option of build.py
TARGET_VARIABLES := CANN CHIP OS PYTHON ARCH BASE WHEELHOUSE NPUS NETWORK INTERFACE RUNTIME FORMAT NODES BUILDER SOURCES GIT_MIRROR PATCHES REGISTRY OUTPUT SINCE AGAINST
# SRC_<component>=folder, as many as are given. VERL_PATH is what verl_npu's own guide calls the tree of verl.
TREES = $(filter SRC_%,$(GIVEN))
KNOWN = PROFILE $(TARGET_VARIABLES) $(TREES) VERL_PATH PIN LEVEL UPGRADE DEV FORCE DOCUMENTED PRINT CMD KIND FILE REUSE HOST_PYTHON CANNERY_CACHE ARGS
lower = $(shell printf '%s' '$1' | tr A-Z_ a-z-)
# A switch is on unless it says that it is not.
on = $(filter-out 0 no false off,$1)
quote = '$(subst ','\'',$1)'
# Only what stands on make's command line: PYTHON or OS in an environment mean something else.
# Every command gets every variable that was given: one that it does not know is refused, not dropped.
OPTIONS = $(foreach v,$(filter $(GIVEN),$(TARGET_VARIABLES)),$(if $($v),--$(call lower,$v) $(call quote,$($v)))) \
	$(foreach p,$(PIN),--pin $(call quote,$p)) $(foreach l,$(LEVEL),--level $(call quote,$l)) $(foreach p,$(UPGRADE),--upgrade $(call quote,$p)) $(if $(call on,$(FORCE)),--force) \
	$(if $(call on,$(DOCUMENTED)),--as-documented) $(if $(call on,$(PRINT)),--print) $(if $(call on,$(REUSE)),--reuse) $(foreach d,$(DEV),--dev $(call quote,$d)) \
	$(foreach t,$(TREES),--src $(call quote,$(t:SRC_%=%)=$($t))) $(if $(VERL_PATH),--src $(call quote,verl=$(VERL_PATH))) $(foreach a,$(ARGS),$(call quote,$a))
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
# Values are texts: a `$` in one is not make's.
$(foreach v,$(filter $(KNOWN),$(GIVEN)),$(eval override $v := $$(value $v)))
UNKNOWN := $(filter-out $(KNOWN) MAKE%,$(GIVEN))
ifneq ($(UNKNOWN),)
$(error unknown variable $(UNKNOWN); known: $(KNOWN) SRC_<component>)
endif
need_profile = $(if $(PROFILE),$(call quote,$(PROFILE)),$(error PROFILE is not set, for example: make $@ PROFILE=quickstart))
need_file = $(if $(FILE),$(call quote,$(FILE)),$(error FILE is not set, for example: make $@ FILE=quickstart.tar.gz))
ifdef CANNERY_CACHE
export CANNERY_CACHE
endif
# run and lint-run read it from there: a command of several lines would be several lines of a recipe.
ifdef CMD
export CMD
endif

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev list show check lock outdated plan render image verify run shell push pull save bundle load patches engine-start engine-stop engine-status clean test unit lint goldens relock lint-run doctor

help: ## print targets and variables
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "variables: PROFILE=name CANN=8.5.0 CHIP=910b OS=ubuntu22.04 PYTHON=3.11 ARCH=amd64 BASE=standin PIN='name==version …' FORCE=1 NPUS=0,1|none CMD='…' KIND='wheels …' LEVEL=train"
	@echo "           NETWORK=host INTERFACE=eth0 RUNTIME=ascend DEV='component=folder …' PRINT=1 FORMAT=compose|pod|job|raycluster NODES=4"
	@echo "           WHEELHOUSE=folder BUILDER=buildx-builder UPGRADE='name name==version …' AGAINST=image-of-yours"
	@echo "           SOURCES=release|release:name,name GIT_MIRROR=folder SRC_<component>=folder VERL_PATH=folder PATCHES=folder DOCUMENTED=1"
	@echo "           REGISTRY=host/path REUSE=1 OUTPUT=file SINCE=older-bundle-or-image FILE=archive-or-compose-file"
	@echo "           ARGS='more options of build.py' CANNERY_CACHE=folder HOST_PYTHON=python3"
	@echo "a command that fails has its own exit code (README, Exit codes); make itself ends with 2 for every failure"

setup: ## make .venv from the locked requirements
	@$(call quote,$(HOST_PYTHON)) tools/setup_venv.py
setup-dev: ## the same, with what tests and linters need
	@$(call quote,$(HOST_PYTHON)) tools/setup_venv.py --dev
list: setup ## list the profiles
	@$(RUN) list $(OPTIONS)
show: setup ## show PROFILE
	@$(RUN) show $(need_profile) $(OPTIONS)
check: setup ## say whether the version set of PROFILE can work
	@$(RUN) check $(need_profile) $(OPTIONS)
lock: setup ## resolve PROFILE (or all profiles) into images/locks; UPGRADE='name …' lets packages be newer
	@$(RUN) lock $(foreach p,$(PROFILE),$(call quote,$p)) $(OPTIONS)
outdated: setup ## say what is newer than PROFILE's lock, and what an upgrade would change
	@$(RUN) outdated $(need_profile) $(OPTIONS)
plan: setup ## show the layers of PROFILE's image
	@$(RUN) plan $(need_profile) $(OPTIONS)
render: setup ## write PROFILE's Dockerfile, bake file and wheels to out/
	@$(RUN) render $(need_profile) $(OPTIONS)
image: setup ## check, build and verify the image of PROFILE
	@$(RUN) image $(need_profile) $(OPTIONS)
verify: setup ## run the verify script in PROFILE's image; AGAINST=image: what differs in one of yours
	@$(RUN) verify $(if $(AGAINST),$(foreach p,$(PROFILE),$(call quote,$p)),$(need_profile)) $(OPTIONS)
run: setup ## start a container of PROFILE with this host's NPUs (CMD='…'; PRINT=1: say how)
	@$(RUN) run $(need_profile) $(OPTIONS) $(if $(CMD),-- sh -c "$$CMD")
shell: setup ## open a shell in a new container of PROFILE with this host's NPUs
	@$(RUN) shell $(need_profile) $(OPTIONS)
lint-run: setup ## say what is wrong with a docker run line of yours (CMD='docker run …'), or a compose file (FILE=compose.yaml)
	@printf '%s' "$$CMD" | $(RUN) lint-run $(if $(CMD),-) $(if $(FILE),--file $(call quote,$(FILE))) $(OPTIONS)
doctor: setup ## say what this host has and lacks for NPUs (PROFILE=… for its image)
	@$(RUN) doctor $(foreach p,$(PROFILE),$(call quote,$p)) $(OPTIONS)
push: setup ## push PROFILE's verified image to REGISTRY
	@$(RUN) push $(need_profile) $(OPTIONS)
pull: setup ## pull the prebuilt image of PROFILE from REGISTRY
	@$(RUN) pull $(need_profile) $(OPTIONS)
save: setup ## write PROFILE's image to OUTPUT, with its sums beside it
	@$(RUN) save $(need_profile) $(OPTIONS)
bundle: setup ## write PROFILE's image, or what SINCE lacks of it, to OUTPUT with its own loader
	@$(RUN) bundle $(need_profile) $(OPTIONS)
load: setup ## load FILE, which save or bundle wrote
	@$(RUN) load $(need_file) $(OPTIONS)
patches: setup ## list the patch sets, or what ARGS says: ARGS='summary verl-npu', 'port REPO FROM TO', 'new REPO --tree DIR'
	@$(RUN) patches $(OPTIONS) $(if $(ARGS),,list) $(foreach p,$(PROFILE),$(call quote,$p))
engine-start: setup ## start Cannery's own engine
	@$(RUN) engine start
engine-stop: setup ## stop Cannery's own engine (images stay; KIND=engine of clean removes it)
	@$(RUN) engine stop
engine-status: setup ## which engine is used
	@$(RUN) engine status
clean: setup ## show what Cannery holds on disk; KIND='wheels out …' removes
	@$(RUN) clean $(foreach k,$(KIND),$(call quote,$k)) $(OPTIONS)
test: lint ## lint, then all tests; starts an engine when none runs
	@$(PY) -m pytest -n 2 -m 'not engine' && $(PY) -m pytest -m engine
unit: setup-dev ## the tests that need no engine
	@$(PY) -m pytest -n 2 -m 'not engine' tests/unit tests/golden tests/edge
lint: setup-dev ## ruff, mypy, import-linter, shellcheck (hadolint runs in the golden tests)
	@.venv/bin/ruff check -q . && .venv/bin/ruff format -q --check . && .venv/bin/mypy --no-error-summary && .venv/bin/lint-imports --no-logo && .venv/bin/shellcheck templates/tools/*.sh .ci/run
goldens: setup-dev ## rewrite the golden files, on purpose
	@$(PY) -m pytest tests/golden --rewrite-goldens
relock: setup ## rewrite requirements.txt and requirements-dev.txt from pyproject.toml
	@$(PY) tools/relock.py
