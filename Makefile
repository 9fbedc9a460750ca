# The commands of the house; each is also what CI runs.
.PHONY: demo test bench fmt lint

# A download through relays in an emulated Internet, in at most 150 s.
demo:
	cargo build --release --package thalweg --package thalweg-bench --package thalweg-lab --bins
	"$${CARGO_TARGET_DIR:-target}/release/thalweg-bench" demo

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
