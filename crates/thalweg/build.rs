//! Makes the linker pack relative relocations if the linker and the loader support it, which saves 1.8 of 31.3 MB
//! (decision 0086).
//!
//! Only for release builds. GNU ld 2.38, lld 15 and glibc 2.36 are the first versions that support it; without them the
//! program is larger.

use std::{env, ffi::OsString, fs, path::Path, process::Command};

const PACKED: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("PROFILE").as_deref() == Ok("release") && links_and_runs(PACKED) {
        println!("cargo:rustc-link-arg-bins={PACKED}");
    }
}

/// Whether an empty program can be linked with `argument` and then starts. A program for another machine is only
/// linked.
fn links_and_runs(argument: &str) -> bool {
    let Some(directory) = env::var_os("OUT_DIR") else {
        return false;
    };
    let (source, program) =
        (Path::new(&directory).join("probe.rs"), Path::new(&directory).join("probe"));
    if fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "-o"]).arg(&program);
    rustc.arg("--target").arg(variable("TARGET"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    rustc.args(["-C", &format!("link-arg={argument}")]).arg(&source);
    succeeds(&mut rustc)
        && (variable("HOST") != variable("TARGET") || succeeds(&mut Command::new(&program)))
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_default()
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}
