# SPDX-License-Identifier: Apache-2.0
# Every target installs the Debian packages it lacks (tools/packages.txt) and builds with cargo.

CARGO  ?= cargo
PREFIX ?= /usr/local
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
SLOWPATH = $(TARGET_DIR)/release/slowpath

.DEFAULT_GOAL := help
# Captures with labels that say what is wrong in each.
LABELS ?= $(wildcard ../shared/captures/verdicts/labels.json) captures/labels.json
# What another tool is compared on; other people's captures and workloads stand beside the clone.
CAPTURES ?= $(wildcard ../shared/captures/tcptrace/*.gz ../shared/captures/packets/*.pcapng)
# The laboratory kernel: the version of linux-source, and ticks a second (100, 250, 300, 1000).
LAB_SOURCE ?= 6.12
LAB_HZ ?= 250
FLOW_SIZES ?= ../shared/data/flow-sizes/DCTCP_CDF.txt
.PHONY: help run build test demo bench-poll bench-ingest bench-ship bench-trace bench-sim bench-sweep bench-lab bench-record bench-owamp bench-emulator lab-kernel lab-guest judge-simulator python-wheel check-python check-trace check-verdicts check-answers check-sim check-butterfly check-explain check-path check-queues check-hardening check-fleet black-hole check-truth dibs-study lint check-docs soak install static deb check-install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build, then start slowpath up: live verdicts on this machine's connections
	@$(SLOWPATH) up

build: ## the slowpath command, optimised
	@tools/need.sh rust build
	@$(CARGO) build --release --locked -p slowpath

test: ## every test this machine can run; the last line counts them
	@tools/test.sh

demo: ## inject every problem in network namespaces and watch slowpath find each (root)
	@tools/need.sh rust build
	@tools/need.sh --try demo
	@$(CARGO) build --release --locked -p slowpath-testbed --bins
	@$(CARGO) run --release --locked -p slowpath-demo

bench-poll: ## what a poll and an event cost; the last line is JSON (root)
	@tools/need.sh rust build
	@tools/need.sh --try bench
	@$(CARGO) build --release --locked -p slowpath-store --example volume
	@$(CARGO) run --release --locked -p slowpath-bench --bin bench-poll

bench-ingest: build ## 8,000 agents over TLS, a restart, a backlog: what `slowpath server` takes (10 min; QUICK=1 for 400 agents); the last line is JSON
	@tools/need.sh --try bench
	@$(CARGO) build --release --locked -p slowpath-bench --bin bench-ingest
	@$(TARGET_DIR)/release/bench-ingest $(if $(QUICK),--quick) $(abspath $(SLOWPATH))

bench-ship: build ## what shipping costs an agent: pairs of agents over the same connections, one of which ships (root, 15 min); the last line is JSON
	@tools/need.sh --try bench
	@$(CARGO) build --release --locked -p slowpath-bench --bin bench-ingest
	@$(TARGET_DIR)/release/bench-ingest agent-cost $(abspath $(SLOWPATH)) 6 60

bench-trace: ## packets a second beside tcptrace and tshark; the last line is JSON
	@tools/need.sh rust build
	@tools/need.sh --try test
	@$(CARGO) run --release --locked -p slowpath-trace --example bench-trace

bench-sim: ## packet-hops a second beside ns-3; the last line is JSON
	@tools/need.sh rust build
	@tools/need.sh peers
	@tools/ns3/bench.py $(FLOW_SIZES)

bench-sweep: build ## a sweep of 160 runs with two jobs, beside one; the last line is JSON
	@tools/bench_sweep.py $(abspath $(SLOWPATH))

bench-lab: lab-kernel ## packets a second of real TCP in virtual time; the last line is JSON
	@$(CARGO) run --release --locked -p slowpath-lab --example bench-lab

bench-record: lab-kernel ## what recordings take, beside compressed captures, and what the recorder costs (root, 15 min); the last line is JSON
	@tools/need.sh --try demo
	@$(CARGO) run --release --locked -p slowpath-replay --example bench-record

bench-owamp: ## 20 sessions of OWAMP, 10,000 packets a second: send error beside a bare loop, stamps beside captures (root; OWAMP_BIN=DIR adds owping); the last line is JSON
	@tools/need.sh rust build
	@tools/need.sh --try test
	@$(CARGO) run --release --locked -p slowpath-path --example bench-owamp

check-path: ## how often `path neck`, `loss` and `route` are right on drawn networks (root, 40 min; CHECK="--seed N"); the last line is JSON
	@tools/need.sh rust build
	@$(CARGO) run --release --locked -p slowpath-path --example check-path -- $(CHECK)

bench-emulator: ## what the emulator adds to a path of 200 Mbit/s and 20 ms (as root); the last line is JSON
	@tools/need.sh rust build
	@$(CARGO) run --release --locked -p slowpath-lab --example bench-emulator

lab-kernel: ## the kernel of `slowpath lab virtual`, built once a source version (3 min) into the user's cache
	@tools/need.sh rust build lab-kernel
	@tools/lab_kernel.sh $(LAB_SOURCE) $(LAB_HZ)

lab-guest: ## QEMU and the stock Debian kernel of `slowpath lab guest`, into the user's cache
	@tools/need.sh lab-guest
	@tools/lab_guest.sh

check-trace: ## our analysis of captures against tcptrace's and tshark's, frame by frame
	@tools/need.sh rust build
	@tools/need.sh --try test
	@$(CARGO) run --release --locked -p slowpath-trace --bin check-trace -- $(CAPTURES) $(FILES)

check-verdicts: build ## verdicts of `slowpath trace` on captures with labels; the last line is JSON
	@tools/check_verdicts.py $(if $(filter file,$(origin LABELS)),--write docs/reference/accuracy.md) $(SLOWPATH) $(LABELS)

check-answers: build ## answers of `slowpath why` about real servers and clients, beside an expert's (root, 25 min); the last line is JSON
	@tools/need.sh --try answers
	@command -v node >/dev/null || tools/need.sh --try answers-node
	@command -v java >/dev/null || tools/need.sh --try answers-java
	@command -v go >/dev/null || tools/need.sh --try answers-go
	@tools/check_answers.py $(if $(CASES),,--write docs/reference/accuracy.md) $(SLOWPATH) $(CASES)

check-truth: ## precision and recall of every verdict on random real TCP (root, 20 min); the last line is JSON
	@tools/need.sh rust build
	@tools/need.sh --try demo
	@$(CARGO) run --release --locked -p slowpath-truth --bin check-truth -- --write docs/reference/accuracy.md $(TRUTH)

python-wheel: ## the Python package that reads every table, as a wheel in python/dist
	@tools/need.sh --try peers
	@tools/python.sh wheel

check-python: build ## its tests and its three notebooks, headless
	@tools/need.sh --try peers
	@tools/python.sh check $(SLOWPATH)

check-sim: ## the same dumbbells here and in ns-3, and slowdowns on a fat-tree (10 min)
	@tools/need.sh rust build
	@tools/need.sh peers
	@tools/ns3/compare.py
	@tools/ns3/slowdown.py

judge-simulator: lab-kernel ## thirteen scenarios in the simulator and on real Linux TCP; the last line is JSON
	@$(CARGO) run --release --locked -p slowpath-lab --example judge-simulator

check-butterfly: lab-kernel ## DETER's section 2.2: re-runs with noise that keep the problem, 100 for each level; the last line is JSON
	@$(CARGO) run --release --locked -p slowpath-replay --example stories -- butterfly 100

check-explain: lab-kernel ## messages with a planted cause, recorded, replayed and explained: is the cause named (MESSAGES=208 SEED=1); the last line is JSON
	@$(CARGO) run --release --locked -p slowpath-replay --example check-explain -- $(or $(MESSAGES),208) $(or $(SEED),1)

check-queues: ## replayed queues beside those that were, 1,024 hosts at three loads; the last line is JSON
	@tools/need.sh rust build
	@$(CARGO) run --release --locked -p slowpath-queues --example check-queues -- scenarios/replay/queues.toml 0.1 0.3 0.8

check-hardening: build ## hostile trials: kills, flipped bits, mutated inputs, limits, memory (root, 10 min; SEED=N repeats); the last line is JSON
	@$(CARGO) run --release --locked -p slowpath-trials --bin check-hardening -- $(abspath $(SLOWPATH)) check

check-fleet: build ## trials of a fleet: kills of either half, outages, full disks, resends, cuts, row by row; both ends of connections; counts by DuckDB (root, 15 min; SEED=N repeats); the last line is JSON
	@tools/need.sh --try test
	@tools/duckdb/peer.py --install || echo "going on without DuckDB" >&2
	@tools/s3/peer.py --install || echo "going on without an object store" >&2
	@$(CARGO) test --locked -p slowpath-server --features object-store --test object_store -- --show-output
	@$(CARGO) run --release --locked -p slowpath-trials --bin check-fleet -- $(abspath $(SLOWPATH)) check

black-hole: build lab-kernel ## docs/images/black-hole.svg, drawn again from a run
	@tools/black_hole.py $(SLOWPATH)

dibs-study: build ## every figure of docs/journal/dibs.md that is missing, run again (15 min for all)
	@tools/dibs_study.py run
	@tools/dibs_study.py tables

lint: ## format, clippy, rustdoc, licences, bans, duplicates, names, links, shell
	@tools/need.sh rust build
	@tools/need.sh --try lint
	@tools/lint.sh

check-docs: ## rustdoc without warnings, links between documents
	@tools/need.sh rust build
	@tools/lint.sh doc tree

soak: build ## fuzz with 10 million inputs a target, hostile trials for longer (root, hours); the last line is JSON
	@tools/need.sh --try test
	@tools/soak.sh $(abspath $(SLOWPATH))

install: build ## the command, its manual, completions and the agent's unit, below $(DESTDIR)$(PREFIX)
	@tools/install.sh $(SLOWPATH) "$(DESTDIR)" "$(PREFIX)"

static: ## the command as one file that needs no other, and the context of the container image
	@tools/need.sh rust build static
	@tools/static.sh $(abspath $(TARGET_DIR))/static

deb: ## the Debian package, the same bytes for the same source
	@tools/need.sh rust build deb
	@tools/deb.sh $(abspath $(TARGET_DIR))

check-install: static deb ## the static command, the package, the unit and the image, each in a root of its own (root)
	@tools/need.sh --try check-install
	@tools/check_install.py $(abspath $(TARGET_DIR))

clean: ## remove what was built here
	@$(CARGO) clean
