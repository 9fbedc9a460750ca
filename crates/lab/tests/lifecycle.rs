//! The lifecycle of a lab and of the programs in it, with real namespaces and processes.

#![allow(clippy::unwrap_used)] // a test

mod support;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, Stdio},
};
use support::{PROGRAM, read_output, run_command, start_lab, wait_until};
use thalweg_lab::topology::LinkChange;

const PAIR: &str = r#"
    [host.a]
    [host.b]
    names = ["www.example"]
    [link.core]
    rate = "100 Mbit/s"
    delay = "1 ms"
    [[path]]
    from = "a"
    to = "b"
    links = ["core"]
"#;

/// Process ids of `sleep MARK`.
fn sleepers(mark: &str) -> Vec<String> {
    processes(|line| line.starts_with(&format!("sleep\0{mark}")))
}

/// Ids of processes whose command line contains `mark`.
fn processes_with(mark: &str) -> Vec<String> {
    processes(|line| line.contains(mark))
}

fn processes(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let has_mark = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| wanted(&String::from_utf8_lossy(&line)))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).filter(has_mark).collect()
}

/// Every network namespace that has a process.
fn network_namespaces() -> BTreeSet<std::path::PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| fs::read_link(e.path().join("ns/net")).ok()).collect()
}

/// A unique number of seconds to sleep, which marks a process of this test.
fn mark(salt: u32) -> String {
    format!("{}.{salt}", 100_000 + std::process::id())
}

#[test]
fn programs_see_their_host_and_its_names() {
    let Some(lab) = start_lab(PAIR) else { return };
    assert_eq!(read_output(&mut lab.command("a", "hostname")), "a");
    let named = read_output(lab.command("a", "getent").args(["ahostsv4", "www.example"]));
    assert!(named.starts_with("10.1.0.2"), "{named}");
    let devices = read_output(lab.command("b", "cat").arg("/proc/net/dev"));
    assert!(devices.contains("wan0") && !devices.contains("eth0"), "{devices}");
    assert_eq!(lab.address("b").to_string(), "10.1.0.2");
}

#[test]
fn input_output_and_exit_codes_are_passed_through() {
    let Some(lab) = start_lab(PAIR) else { return };
    let mut cat = lab.command("a", "cat");
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through");
    assert_eq!(run_command(lab.command("a", "sh").args(["-c", "exit 7"])).status.code(), Some(7));
    let killed = run_command(lab.command("a", "sh").args(["-c", "kill -TERM $$"]));
    assert_eq!(killed.status.code(), Some(128 + 15));
    let absent = run_command(&mut lab.command("a", "no-such-program"));
    assert_eq!(absent.status.code(), Some(127));
    let words = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(words.contains("no-such-program") && words.contains("`a`"), "{words}");
    let nowhere = run_command(&mut lab.command("c", "true"));
    let words = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(words.contains("there is no host `c`; available: a, b"), "{words}");
}

#[test]
fn killing_a_command_kills_its_descendants() {
    let Some(lab) = start_lab(PAIR) else { return };
    let mark = mark(1);
    let script = format!("setsid sleep {mark} & sleep {mark} & echo started; wait");
    let mut child =
        lab.command("a", "sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    wait_until("both sleepers run", || sleepers(&mark).len() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("no sleeper is left", || sleepers(&mark).is_empty());
}

#[test]
fn a_daemon_outlives_the_command_that_started_it_but_not_the_lab() {
    let Some(lab) = start_lab(PAIR) else { return };
    let mark = mark(2);
    let script = format!("setsid sleep {mark} >/dev/null 2>&1 </dev/null &");
    assert!(run_command(lab.command("a", "sh").args(["-c", &script])).status.success());
    wait_until("the daemon runs", || !sleepers(&mark).is_empty());
    drop(lab);
    wait_until("the daemon is gone", || processes_with(&mark).is_empty());
}

#[test]
fn no_process_or_namespace_is_left_after_kill_9() {
    let Some(lab) = start_lab(PAIR) else { return };
    let before: BTreeSet<_> = network_namespaces();
    let mark = mark(3);
    let mut sleeper = lab.command("a", "sleep").arg(&mark).spawn().unwrap();
    wait_until("the sleeper runs", || !sleepers(&mark).is_empty());
    let inside = network_namespaces();
    assert!(inside.difference(&before).count() > 0, "the sleeper has no namespace of its own");
    let process = lab.process_id().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
    assert_eq!(sleeper.wait().unwrap().code(), Some(128 + 9));
    wait_until("no process of the lab is left", || processes_with(&mark).is_empty());
    wait_until("no namespace of the lab is left", || {
        network_namespaces().is_disjoint(&inside.difference(&before).cloned().collect())
    });
}

#[test]
fn links_change_while_packets_flow() {
    let Some(lab) = start_lab(PAIR) else { return };
    let ping = |count: &str| {
        let address = lab.address("b").to_string();
        run_command(lab.command("a", "bash").args([
            "-c",
            &format!("for i in $(seq {count}); do echo x > /dev/udp/{address}/9; done"),
        ]))
    };
    assert!(ping("3").status.success());
    let down = LinkChange::parse(&["down".to_owned()]).unwrap();
    lab.set("core", &down).unwrap();
    ping("2");
    wait_until("two packets fell into the gap", || {
        lab.stats(false).unwrap().link("core.fwd").unwrap().down_drops >= 2
    });
    let before = lab.stats(false).unwrap().link("core.fwd").unwrap().packets;
    lab.set("core", &LinkChange::parse(&["up".to_owned()]).unwrap()).unwrap();
    ping("3");
    wait_until("packets flow again", || {
        lab.stats(false).unwrap().link("core.fwd").unwrap().packets >= before + 3
    });
    let error = lab.set("cor", &down).unwrap_err().to_string();
    assert!(error.contains("core"), "{error}");
}

#[test]
fn a_capture_holds_the_packets_that_entered_the_link() {
    let Some(lab) = start_lab(PAIR) else { return };
    let mut file = tempfile::tempfile().unwrap();
    let capture = lab.pcap("core.fwd", &file).unwrap();
    let script = "for i in 1 2 3; do echo captured > /dev/udp/10.1.0.2/9; done";
    assert!(run_command(lab.command("a", "bash").args(["-c", script])).status.success());
    let mut bytes = Vec::new();
    wait_until("three packets are in the file", || {
        use std::io::{Read, Seek};
        file.rewind().unwrap();
        bytes.clear();
        file.read_to_end(&mut bytes).unwrap();
        bytes.windows(9).filter(|w| *w == b"captured\n").count() == 3
    });
    drop(capture);
    // The magic number for nanoseconds, link type raw IP, then a record with an IPv4 packet that contains UDP.
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_ne_bytes());
    assert_eq!(bytes[20..24], 101_u32.to_ne_bytes());
    assert_eq!((bytes[40], bytes[49]), (0x45, 17));
    assert!(lab.pcap("no-link", &file).is_err());
}

#[test]
fn run_returns_the_exit_code_of_its_command_and_ends_all_processes() {
    if !support::is_lab_possible() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let topology = scratch.path().join("pair.toml");
    fs::write(&topology, PAIR).unwrap();
    let mark = mark(4);
    let script = format!(
        "{PROGRAM} exec a -- sh -c 'setsid sleep {mark} >/dev/null 2>&1 & hostname'; exit 5"
    );
    let mut run = Command::new(PROGRAM);
    let out = run_command(run.arg("run").arg(&topology).args(["--", "sh", "-c", &script]));
    assert_eq!(out.status.code(), Some(5), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.stdout, b"a\n");
    wait_until("the command's daemon is gone", || sleepers(&mark).is_empty());
}

#[test]
fn a_name_is_used_by_one_lab_and_down_waits_for_its_end() {
    if !support::is_lab_possible() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let topology = scratch.path().join("pair.toml");
    fs::write(&topology, PAIR).unwrap();
    let name = format!("twin-{}", std::process::id());
    let up = || {
        let mut up = Command::new(PROGRAM);
        up.arg("up").arg(&topology).args(["--name", &name]).stderr(Stdio::piped());
        up.stdout(Stdio::piped()).spawn().unwrap()
    };
    let twins = [up(), up(), up()].map(|child| child.wait_with_output().unwrap());
    let standing = twins.iter().filter(|out| out.status.success()).count();
    assert_eq!(standing, 1, "{twins:?}");
    let refused = twins.iter().find(|out| !out.status.success()).unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains(&format!("thalweg-bench lab down {name}")), "{words}");
    assert!(run_command(Command::new(PROGRAM).args(["down", &name])).status.success());
    assert!(processes_with(&format!("serve\0--name\0{name}")).is_empty());
    let again = run_command(Command::new(PROGRAM).args(["down", &name]));
    let words = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(words.contains(&format!("no lab `{name}` is running")), "{words}");
}

#[test]
fn a_private_lab_is_used_only_if_named() {
    let Some(lab) = start_lab(PAIR) else { return };
    let name = lab.socket().file_stem().unwrap().to_string_lossy().into_owned();
    let mut exec = Command::new(PROGRAM);
    exec.env_remove("THALWEG_LAB").args(["exec", "--lab", &name, "a", "--", "hostname"]);
    assert_eq!(read_output(&mut exec), "a");
    let listed = read_output(Command::new(PROGRAM).args(["list", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["labs"][&name]["private"], true, "{listed}");
}

#[test]
fn a_failed_write_of_a_capture_is_reported() {
    let Some(lab) = start_lab(PAIR) else { return };
    let mut pcap = Command::new(PROGRAM);
    pcap.arg("pcap").arg("--lab").arg(lab.socket()).args(["core", "-o", "/dev/full"]);
    let out = run_command(&mut pcap);
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{words}");
    assert!(words.contains("No space left"), "{words}");
}

#[test]
fn a_lab_runs_inside_a_host_of_a_lab() {
    let Some(lab) = start_lab(PAIR) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let topology = scratch.path().join("inner.toml");
    fs::write(&topology, PAIR.replace("[host.a]", "[host.inner]").replace("\"a\"", "\"inner\""))
        .unwrap();
    let inner = lab
        .command("a", PROGRAM)
        .arg("run")
        .arg(&topology)
        .args(["--host", "inner", "--"])
        .args(["sh", "-c", "hostname; getent ahostsv4 b"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&inner.stdout).into_owned();
    assert!(words.starts_with("inner\n10.1.0.2"), "{inner:?}");
}

#[test]
fn terminating_run_ends_its_command() {
    if !support::is_lab_possible() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let topology = scratch.path().join("pair.toml");
    fs::write(&topology, PAIR).unwrap();
    let mark = mark(5);
    let mut run = Command::new(PROGRAM);
    run.arg("run").arg(&topology).args(["--", "sleep", &mark]);
    let mut child = run.spawn().unwrap();
    wait_until("the command runs", || !sleepers(&mark).is_empty());
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert!(!status.success() && status.signal().is_none(), "{status}");
    wait_until("the command is gone", || sleepers(&mark).is_empty());
}

#[test]
fn an_ordinary_user_can_run_a_lab_if_the_device_is_accessible() {
    if !support::is_lab_possible() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: already an ordinary user; the other tests show the same");
        return;
    }
    let scratch = tempfile::tempdir_in("/tmp").unwrap();
    let at = |name: &str| scratch.path().join(name);
    let made = Command::new("mknod").arg(at("tun")).args(["-m", "666", "c", "10", "200"]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this machine lets nobody make a device node");
        return;
    }
    copy_program(&at("thalweg-lab"));
    fs::write(at("pair.toml"), PAIR).unwrap();
    open_to_all(scratch.path());
    let mut run = Command::new(at("thalweg-lab"));
    run.uid(65_534).gid(65_534).env_remove("XDG_RUNTIME_DIR").current_dir(scratch.path());
    run.env("TMPDIR", scratch.path()).env("THALWEG_TUN", at("tun"));
    run.args(["run", "pair.toml", "--host", "a", "--"]);
    let script = "hostname; getent ahostsv4 b; id -u";
    let out = run_command(run.args(["sh", "-c", script]));
    let words = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(words.starts_with("a\n10.1.0.2"), "{words}");
}

/// Copies the program under test. A separate `cp` does it, because a file that this process has open for writing while
/// another test forks could not be executed (`ETXTBSY`).
fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(PROGRAM).arg(to).status().unwrap().success());
}

fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn the_error_about_an_inaccessible_device_says_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to become another user");
        return;
    }
    let scratch = tempfile::tempdir_in("/tmp").unwrap();
    copy_program(&scratch.path().join("thalweg-lab"));
    fs::write(scratch.path().join("pair.toml"), PAIR).unwrap();
    fs::write(scratch.path().join("closed"), "").unwrap();
    Command::new("chmod").arg("0600").arg(scratch.path().join("closed")).status().unwrap();
    open_to_all(scratch.path());
    let mut run = Command::new(scratch.path().join("thalweg-lab"));
    run.uid(65_534).gid(65_534).env_remove("XDG_RUNTIME_DIR").current_dir(scratch.path());
    run.env("TMPDIR", scratch.path()).env("THALWEG_TUN", scratch.path().join("closed"));
    let out = run_command(run.args(["run", "pair.toml", "--", "true"]));
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    assert!(words.contains("chmod 0666 /dev/net/tun"), "{words}");
}
