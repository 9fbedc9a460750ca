# The commands of the house; each is also what CI runs.
.PHONY: demo test bench fmt lint

# The cargo profile of the programs that the demo runs.
DEMO_PROFILE = release

# A download through relays in an emulated Internet, in at most 150 s.
demo:
	cargo build --profile $(DEMO_PROFILE) --package thalweg --package thalweg-bench --package thalweg-lab --bins
	"$${CARGO_TARGET_DIR:-target}/$(DEMO_PROFILE)/thalweg-bench" demo

# Everything CI checks; installs what it needs.
test:
	scripts/test

# The quick form of every experiment.
bench:
	scripts/bench

fmt:
	cargo fmt --all

lint:
	scripts/test fmt clippy doc deny
