//! A dry run predicts the failures and the exit code of the collection itself.

use super::{Host, at, ended, events, mesh, named, text, tree};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Output,
};

/// A fault: its name, how it is made (from the offered directory `data` and the target directory), the requested paths
/// below `data`, the exit code, and a part of the message.
type FaultCase = (&'static str, fn(&Path, &Path), &'static [&'static str], i32, &'static str);

const FAULT_CASES: [FaultCase; 17] = [
    ("nothing", |_, _| {}, &["d"], 0, ""),
    ("a path that is not there", |_, _| {}, &["gone"], 23, "gone: "),
    ("one of two paths", |_, _| {}, &["gone", "d"], 23, "gone: "),
    ("a pattern that nothing matches", |_, _| {}, &["*.none"], 23, "*.none: "),
    ("a path that is not offered", |_, _| {}, &["../other"], 4, "offer"),
    ("a link and a directory of one name", |_, _| {}, &["d/", "e/"], 2, "would be both"),
    (
        "a directory here, a file there",
        |_, here| fs::create_dir_all(here.join("d/a/precious")).unwrap(),
        &["d"],
        23,
        "a directory that is not empty",
    ),
    (
        "an empty directory here, a file there",
        |_, here| fs::create_dir_all(here.join("d/a")).unwrap(),
        &["d"],
        0,
        "",
    ),
    (
        "a file here, a directory there",
        |_, here| {
            fs::create_dir(here).unwrap();
            fs::write(here.join("d"), "").unwrap();
        },
        &["d"],
        0,
        "",
    ),
    (
        "a link here, a directory there",
        |_, here| {
            fs::create_dir(here).unwrap();
            symlink("elsewhere", here.join("d")).unwrap();
        },
        &["d"],
        0,
        "",
    ),
    ("a file where all goes", |_, here| fs::write(here, "").unwrap(), &["d"], 6, "directory"),
    (
        "a file above where all goes",
        |_, here| {
            fs::write(here.with_extension("above"), "").unwrap();
            symlink(here.with_extension("above"), here).unwrap();
        },
        &["d"],
        6,
        "directory",
    ),
    (
        "a pipe",
        |data, _| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, data.join("d/pipe"), kind, mode, 0).unwrap();
        },
        &["d"],
        0,
        "device, socket or pipe",
    ),
    (
        "a file of our own in the making",
        |data, _| fs::write(data.join("d/.thalweg-1"), "").unwrap(),
        &["d"],
        0,
        "Thalweg's own",
    ),
    (
        "a file that is larger than the disk",
        |data, _| sparse(&data.join("d/large"), 1 << 52),
        &["d"],
        23,
        "are free",
    ),
    (
        "too deep",
        |data, _| {
            let deep = data.join("d").join(["x"; 300].join("/"));
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("a"), "").unwrap();
        },
        &["d"],
        23,
        "directories deep",
    ),
    (
        "many of one kind",
        |data, here| {
            for n in 0..500 {
                fs::write(data.join(format!("d/f{n}")), "f").unwrap();
                fs::create_dir_all(here.join(format!("d/f{n}/precious"))).unwrap();
            }
        },
        &["d"],
        23,
        "and 490 more of this kind",
    ),
];

/// A file larger than the disk, with more holes than a listing can name, so that most of them count as data.
fn sparse(path: &Path, length: u64) {
    let file = fs::File::create(path).unwrap();
    // A file system without files of this length gets a shorter one, which has the same effect.
    let length = if file.set_len(length).is_ok() { length } else { 1 << 43 };
    file.set_len(length).unwrap();
    for island in 0..3000 {
        file.write_all_at(b"x", island * (length / 3000)).unwrap();
    }
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_dry_run_reports_the_failures_of_the_collection() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let data = fra.path("data");
    for (what, make, paths, code, says) in FAULT_CASES {
        fs::remove_dir_all(&data).unwrap();
        for directory in ["d", "e"] {
            fs::create_dir_all(data.join(directory)).unwrap();
        }
        fs::write(data.join("d/a"), "a").unwrap();
        symlink("a", data.join("e/a")).unwrap();
        let here = lap.path(&what.replace(' ', "-"));
        make(&data, &here);
        let made = || {
            let mut files = tree::files(&lap.path(""));
            files.retain(|file| !file.starts_with("state/"));
            files
        };
        let before = made();
        let paths: Vec<String> = paths.iter().map(|path| at("fra", fra, path)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let call = [&["gather"], &paths[..], &["--into", here.to_str().unwrap()]].concat();

        let (dry, dry_said) = said(&lap.run(&[&call[..], &["--dry-run"]].concat()));
        assert_eq!(made(), before, "{what}: nothing is made");
        let json = lap.run(&[&call[..], &["--dry-run", "--json"]].concat());
        let (real, real_said) = said(&lap.run(&call));
        assert_eq!((dry, real), (Some(code), Some(code)), "{what}: {dry_said}; {real_said}");
        assert!(dry_said.contains(says), "{what}: {dry_said}");
        assert!(real_said.contains(says), "{what}: {real_said}");
        assert!(dry_said.lines().count() < 20, "{what}: {dry_said}");
        assert_eq!(json.status.code(), Some(code), "{what}");
        check_json(what, &json, code, says);
    }
}

/// Checks that the JSON has the same facts, with counts.
fn check_json(what: &str, json: &Output, code: i32, says: &str) {
    let all = events(json);
    if code == 23 {
        let end = ended(json);
        assert_eq!(end["outcome"], "planned", "{what}: {end}");
        let named_ones = named(&all, "file_failed").len() as u64;
        let more: u64 =
            named(&all, "more_failed").iter().map(|e| e["count"].as_u64().unwrap()).sum();
        assert_eq!(end["failed_files"], named_ones + more, "{what}: {end}");
        assert!(named_ones > 0 && named_ones <= 50, "{what}: {named_ones}");
    }
    let is_said = |event: &Value| event.to_string().contains(says.trim_end_matches(": "));
    let counted = says.starts_with("and ");
    let passed_over = named(&all, "passed_over");
    let is_left_out = code == 0 && passed_over.iter().any(|e| e["paths"][0].is_string());
    assert!(counted || is_left_out || all.iter().any(is_said), "{what}: {all:?}");
}

#[test]
fn a_dry_run_reports_another_running_collection() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    fs::write(fra.path("data/a"), "a").unwrap();
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let source = at("fra", fra, "a");
    fs::create_dir(lap.path("d")).unwrap();
    let lock = fs::File::create(lap.path("d/.thalweg-gather")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    for dry in [&["--dry-run"][..], &[]] {
        let said = lap.fails(7, &[&["gather", &source, "--into", "d", "-q"], dry].concat());
        assert!(said.contains("another collection"), "{said}");
    }
}

#[test]
fn a_dry_run_reports_a_directory_without_write_permission() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: the superuser may write everywhere");
        return;
    }
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    fs::write(fra.path("data/a"), "a").unwrap();
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let source = at("fra", fra, "a");
    fs::create_dir(lap.path("shut")).unwrap();
    fs::set_permissions(lap.path("shut"), fs::Permissions::from_mode(0o500)).unwrap();
    for into in ["shut", "shut/below"] {
        for dry in [&["--dry-run"][..], &[]] {
            let said = lap.fails(6, &[&["gather", &source, "--into", into, "-q"], dry].concat());
            assert!(said.contains("ermission denied"), "{said}");
        }
    }
}

#[test]
fn bytes_of_failed_files_are_not_counted() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let data = fra.path("data/run");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("steady"), tree::content(0, 0, 100_000)).unwrap();
    fs::write(data.join("log"), tree::content(0, 1, 6_000_000)).unwrap();
    let source = at("fra", fra, "run");
    let args = ["gather", &source, "--into", "d", "--json", "--bwlimit", "2M"];
    let mut running = super::Running::new(lap.command(&args));
    running.until_done(1_000_000);
    fs::write(data.join("log"), tree::content(0, 2, 6_000_001)).unwrap();
    assert_eq!(running.code(), Some(23));
    let end = &running.last;
    assert_eq!((&end["bytes"], &end["files"]), (&100_000.into(), &1.into()), "{end}");
    assert!(end["lost_bytes"].as_u64().unwrap() >= 900_000, "{end}");
}
