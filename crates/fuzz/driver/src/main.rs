//! Runs the target in `THALWEG_FUZZ_TARGET` with libFuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use thalweg_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("THALWEG_FUZZ_TARGET").unwrap_or_default();
    thalweg_fuzz::target(&name).unwrap_or_else(|| panic!("THALWEG_FUZZ_TARGET: no target {name:?}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.check)(bytes));
