//! The blocks of the tutorial, run in order by a shell with the real program.

use super::{
    host::{PATIENCE, text},
    samples::check,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    fs,
    net::Ipv4Addr,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};
use thalweg_lab::port::Port;

/// A step of the page: the commands, and the lines that they must print among others.
#[derive(Debug, Default, PartialEq)]
struct Step {
    commands: String,
    prints: Vec<String>,
}

/// The steps of a page: its `sh` blocks, each with the `text` block that follows before the next one.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block = None;
    for line in page.lines() {
        match (block, line.strip_prefix("```")) {
            (None, Some("sh")) => {
                block = Some("sh");
                steps.push(Step::default());
            }
            (None, Some(kind)) => block = Some(kind),
            (Some(_), Some(_)) => block = None,
            (Some("sh"), None) => {
                let step = steps.last_mut().expect("a step");
                step.commands += line;
                step.commands.push('\n');
            }
            (Some("text"), None) => {
                steps.last_mut().expect("commands before").prints.push(line.to_owned());
            }
            _ => {}
        }
    }
    steps
}

#[test]
fn steps_are_blocks_with_what_they_print() {
    let page = "# A\n\n```sh\na\nb\n```\n\n```text\nc\n```\n\n```toml\nd\n```\n\n```sh\ne\n```\n";
    let step = |commands: &str, prints: &[&str]| Step {
        commands: commands.to_owned(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(steps(page), [step("a\nb\n", &["c"]), step("e\n", &[])]);
}

/// What separates the output of steps.
const MARK: &str = "-- step --";

#[test]
fn the_tutorial_works_as_it_is_written() {
    if !["python3", "timeout"].iter().all(|name| has_program(name)) {
        eprintln!("skipped: python3 is missing");
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    let steps = steps(&fs::read_to_string(page).unwrap());
    assert!(steps.len() >= 12, "only {} steps", steps.len());
    // The page's ports may be in use here.
    let ports = ["8000", "7301", "7302", "7374", "7375"];
    let ours = ports.map(|_| Port::reserve(Ipv4Addr::LOCALHOST).unwrap());
    let mut script = "set -eu\n".to_owned();
    for step in &steps {
        script += &format!("echo '{MARK}'\n{}", step.commands);
    }
    for (port, own) in ports.iter().zip(&ours) {
        script = script.replace(port, &own.number().to_string());
    }
    let home = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let limit = (2 * PATIENCE).as_secs().to_string();
    let mut shell = Command::new("timeout");
    shell.args(["--kill-after=5", &limit, "sh", "-c", &format!("exec 2>&1\n{script}")]);
    shell.env("HOME", home.path()).env("PATH", path).env("COLUMNS", "100");
    for name in ["THALWEG_STATE", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        shell.env_remove(name);
    }
    // Not a pipe: nodes of a tutorial that failed would keep it open.
    let printed = home.path().join("printed");
    shell.stdin(Stdio::null()).stdout(fs::File::create(&printed).unwrap()).process_group(0);
    let mut child = shell.spawn().unwrap();
    let status = child.wait().unwrap();
    // Ends what a tutorial that failed has left.
    _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let said = text(&fs::read(printed).unwrap());
    assert!(status.success(), "{status}:\n{said}{}", logs(home.path()));
    let printed: Vec<&str> = said.split(&format!("{MARK}\n")).skip(1).collect();
    assert_eq!(printed.len(), steps.len(), "{said}");
    for (step, printed) in steps.iter().zip(printed) {
        check(&step.prints, printed);
    }
}

fn has_program(name: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The logs of the tutorial's nodes.
fn logs(home: &Path) -> String {
    let read = |name| fs::read_to_string(home.join("thalweg-tutorial").join(name));
    ["fra.log", "nyc.log", "web.log"].map(|name| read(name).unwrap_or_default()).concat()
}
