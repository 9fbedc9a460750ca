//! Submissions of many files in one command: the result of each, and the files left beside them.

use super::host::{Host, text, until};
use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::Path,
    process::{Command, Stdio},
};

const BOX: &str = "[[drop_box]]\nname = \"taxes\"\nuntil = \"2100-01-01T00:00:00Z\"\nmax_bytes = \"1 MB\"\nopen = true\n";

fn committed(host: &Host) -> u64 {
    let status = host.json(&["drop-box", "status", "taxes", "--json"]);
    status["committed"].as_u64().unwrap()
}

/// The names of files in a directory that are receipts or unfinished receipts.
fn receipts(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.contains(".receipt"));
    names.sort();
    names
}

fn unsigned(directory: &Path) -> Vec<String> {
    let mut names = receipts(directory);
    names.retain(|name| {
        let kept = fs::read(directory.join(name)).unwrap_or_default();
        !String::from_utf8_lossy(&kept).contains("\nstamp ")
    });
    names
}

/// A description, how `DIR/bad` is made, and a part of the message.
type BadFile = (&'static str, fn(&Path), &'static str);

/// Files that cannot be submitted.
const BAD_FILES: [BadFile; 9] = [
    ("a directory", |bad| fs::create_dir(bad).unwrap(), "pack it"),
    ("not there", |_| {}, "No such file"),
    ("a link to nothing", |bad| symlink("nothing", bad).unwrap(), "No such file"),
    ("a link to itself", |bad| symlink("bad", bad).unwrap(), "symbolic links"),
    ("a link to a directory", |bad| symlink(".", bad).unwrap(), "pack it"),
    (
        "a pipe",
        |bad| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, bad, kind, mode, 0).unwrap();
        },
        "not a file",
    ),
    (
        "too large",
        |bad| fs::write(bad, vec![0; 1_000_001]).unwrap(),
        "more than the 1000000 that a submission may have",
    ),
    (
        "a receipt that is none in its place",
        |bad| {
            fs::write(bad, "data").unwrap();
            fs::write(bad.with_extension("receipt"), "a shopping list").unwrap();
        },
        "not a complete receipt",
    ),
    (
        "a directory in its receipt's place",
        |bad| {
            fs::write(bad, "data").unwrap();
            fs::create_dir(bad.with_extension("receipt")).unwrap();
        },
        "not a complete receipt",
    ),
];

#[test]
fn an_unsuitable_file_does_not_prevent_the_submission_of_others() {
    let fra = Host::founder();
    let _runs = fra.start_with(BOX, None);
    for (at, (what, make, says)) in BAD_FILES.iter().enumerate() {
        let name = |file: &str| format!("w{at}/{file}");
        let dir = fra.path(&format!("w{at}"));
        fs::create_dir(&dir).unwrap();
        for good in ["a", "b"] {
            fs::write(dir.join(good), format!("{at}{good}")).unwrap();
        }
        make(&dir.join("bad"));
        let own = receipts(&dir);
        let before = committed(&fra);
        let (a, bad, b) = (name("a"), name("bad"), name("b"));
        let call = ["submit", &a, &bad, &b, "--to", "taxes@fra"];

        // A dry run reports the same, with the same exit code, and does nothing.
        let dry = fra.run(&[&call[..], &["--dry-run"]].concat());
        assert_eq!(dry.status.code(), Some(1), "{what}: {}", text(&dry.stderr));
        assert!(text(&dry.stderr).contains(says), "{what}: {}", text(&dry.stderr));
        assert_eq!((committed(&fra), receipts(&dir)), (before, own.clone()), "{what}");

        let ended = fra.run(&call);
        let (out, said) = (text(&ended.stdout), text(&ended.stderr));
        assert_eq!(ended.status.code(), Some(1), "{what}: {out}{said}");
        assert!(said.contains("bad") && said.contains(says), "{what}: {said}");
        assert_eq!(out.matches(": received by fra").count(), 2, "{what}: {out}");
        assert_eq!(committed(&fra), before + 2, "{what}");
        let mut new = receipts(&dir);
        new.retain(|name| !own.contains(name));
        assert_eq!(new, ["a.receipt", "b.receipt"], "{what}");

        // The same as JSON: an object for each file.
        let json = fra.run(&[&call[..], &["--json"]].concat());
        let lines: Vec<serde_json::Value> =
            text(&json.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{what}: {lines:?}");
        let its = lines.iter().find(|line| line["file"] == bad.as_str()).unwrap();
        assert_eq!(its["step"], "nothing", "{what}: {its}");
        assert!(its["why"].as_str().unwrap().contains(says), "{what}: {its}");
        assert_eq!(committed(&fra), before + 2, "{what}: nothing new");
    }
}

#[test]
fn a_command_that_commits_nothing_leaves_no_receipts() {
    let fra = Host::founder();
    let late = BOX.replace("2100", "2020");
    let dir = fra.path("w");
    fs::create_dir(&dir).unwrap();
    for file in ["a", "b"] {
        fs::write(dir.join(file), file).unwrap();
    }
    let call = |to: &str| {
        let ended = fra.run(&["submit", "w/a", "w/b", "--to", to]);
        (ended.status.code(), text(&ended.stderr))
    };
    let runs = fra.start_with(&late, None);
    for (to, code, says) in [("taxes@fra", 3, "too late"), ("grants@fra", 1, "no drop box")] {
        let (ended, said) = call(to);
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.contains(says), "{said}");
        assert_eq!(receipts(&dir), Vec::<String>::new(), "{to}");
    }
    drop(runs);
    let (ended, said) = call("taxes@fra");
    assert!(ended == Some(1) && said.contains("nothing was committed by this request"), "{said}");
    assert_eq!(receipts(&dir), Vec::<String>::new(), "nobody was there");

    // The unfinished receipt of an earlier command is continued, or removed if the destination refuses.
    let runs = fra.start_with(BOX, None);
    fra.ok(&["submit", "w/a", "--to", "taxes@fra", "--commit-only"]);
    let signed = fs::read_to_string(dir.join("a.receipt")).unwrap();
    let words = ["committed ", "deadline ", "number ", "stamp "];
    let is_signed = |line: &&str| words.iter().any(|word| line.starts_with(word));
    let left: String = signed.lines().filter(|l| !is_signed(l)).map(|l| format!("{l}\n")).collect();
    fs::write(dir.join("a.receipt"), &left).unwrap();
    assert_eq!(unsigned(&dir), ["a.receipt"]);
    drop(runs);
    let _runs = fra.start_with(&late, None);
    // An existing stamp can be obtained again, even after the deadline.
    let (ended, said) = call("taxes@fra");
    assert_eq!(ended, Some(3), "{said}");
    assert_eq!(receipts(&dir), ["a.receipt"], "{said}");
    assert_eq!(unsigned(&dir), Vec::<String>::new());
    // A receipt that the destination does not know is useless.
    let nonce = left.lines().find(|l| l.starts_with("nonce ")).unwrap();
    fs::write(dir.join("gone.receipt"), left.replace(nonce, &format!("nonce {}", "ab".repeat(32))))
        .unwrap();
    let ended = fra.run(&["submit", "w/a", "w/gone.receipt", "--to", "taxes@fra"]);
    assert!(
        text(&ended.stderr).contains("of a file that is not here: removed"),
        "{}",
        text(&ended.stderr)
    );
    assert_eq!((ended.status.code(), receipts(&dir)), (Some(0), vec!["a.receipt".to_owned()]));
}

#[test]
fn receipts_of_the_box_are_recognised_by_content_and_skipped() {
    let fra = Host::founder();
    let two = format!("{BOX}{}", BOX.replace("taxes", "grants"));
    let _runs = fra.start_with(&two, None);
    fs::write(fra.path("a"), "a").unwrap();
    fra.ok(&["submit", "a", "--to", "taxes@fra"]);
    let receipt = fs::read_to_string(fra.path("a.receipt")).unwrap();
    let without = |word: &str| {
        let lines = receipt.lines().filter(|line| !line.starts_with(word));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    for (name, content) in [
        ("a.receipt", receipt.clone()),
        ("renamed.txt", receipt.clone()),
        ("a.receipt.anew", receipt.clone()),
        ("without-its-secret", without("nonce ")),
        ("unsigned", without("stamp ")),
        ("altered", receipt.replace("size 1", "size 2")),
        ("other-line-ends", receipt.replace('\n', "\r\n")),
        ("cut-off", receipt[..receipt.len() / 2].to_owned()),
    ] {
        fs::write(fra.path(name), content).unwrap();
        let said = fra.run(&["submit", "a", name, "--to", "taxes@fra"]);
        let (out, said) = (text(&said.stdout), text(&said.stderr));
        assert_eq!(out, "a: received by fra; a.receipt\n", "{name}: {said}");
        assert!(said.contains(&format!("{name}: it is a receipt of `taxes`")), "{name}: {said}");
        assert_eq!(committed(&fra), 1, "{name}");
        let json = fra.ok(&["submit", "a", name, "--to", "taxes@fra", "--json"]);
        assert!(json.contains("\"step\":\"receipt\""), "{name}: {json}");
        if !name.contains("receipt") {
            fs::remove_file(fra.path(name)).unwrap();
        }
    }
    // A receipt of this box is not submitted; for another box it is data like any other.
    let said = fra.fails(1, &["submit", "a.receipt", "--to", "taxes@fra"]);
    assert!(said.contains("a receipt of `taxes`"), "{said}");
    fra.ok(&["submit", "a.receipt", "--to", "grants@fra"]);
    let verified = fra.ok(&["receipt", "verify", "a.receipt.receipt", "--data", "a.receipt"]);
    assert!(verified.contains("valid"), "{verified}");
}

#[test]
fn any_valid_file_name_can_be_submitted() {
    let fra = Host::founder();
    let _runs = fra.start_with(BOX, None);
    let long = |length: usize, ending: &str| "n".repeat(length - ending.len()) + ending;
    let mut names: Vec<Vec<u8>> = vec![
        long(200, ".pdf").into(),
        long(243, ".tar.gz").into(),
        long(247, ".pdf").into(),
        long(248, ".pdf").into(),
        long(255, ".pdf").into(),
        long(254, ".jpeg").replacen('n', "m", 1).into(),
        ("確".repeat(83) + ".pdf").into(),
        "Just a moment… [2026]: a \"report\"?.pdf".into(),
        b" ".to_vec(),
        b"\xff\xfe.pdf".to_vec(),
        b".hidden".to_vec(),
        b"two\nlines.txt".to_vec(),
    ];
    names.dedup();
    for (at, name) in names.iter().enumerate() {
        let name = std::ffi::OsStr::from_bytes(name);
        fs::write(fra.path("").join(name), at.to_string()).unwrap();
        for call in ["first", "again"] {
            let mut command = fra.command(&["submit", "--to", "taxes@fra"]);
            let ended = command.arg(Path::new(".").join(name)).output().unwrap();
            assert!(ended.status.success(), "{name:?}, {call}: {}", text(&ended.stderr));
        }
        assert_eq!(committed(&fra), at as u64 + 1, "{name:?}: the receipt was found again");
    }
    super::host::until("all receipts", || {
        fra.json(&["drop-box", "status", "taxes", "--json"])["received"] == names.len()
    });
    fra.ok(&["drop-box", "collect", "taxes", "--into", "in"]);
    for (at, name) in names.iter().enumerate() {
        let number = format!("{:06}-", at + 1);
        let all = fs::read_dir(fra.path("in")).unwrap().map(|e| e.unwrap().file_name());
        let its = all.map(|n| n.into_string().unwrap()).filter(|n| n.starts_with(&number));
        let kept: Vec<String> = its.filter(|n| !n.ends_with(".receipt")).collect();
        let ending = String::from_utf8_lossy(name).rsplit_once('.').map(|(_, e)| e.to_owned());
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(ending.is_none_or(|ending| kept[0].ends_with(&ending)), "{kept:?}");
        assert_eq!(fs::read_to_string(fra.path("in").join(&kept[0])).unwrap(), at.to_string());
    }
}

#[test]
fn an_unwritable_receipt_is_detected_first_and_prevents_no_other() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: for the superuser every directory can be written");
        return;
    }
    let fra = Host::founder();
    let _runs = fra.start_with(BOX, None);
    for dir in ["open", "shut"] {
        fs::create_dir(fra.path(dir)).unwrap();
        fs::write(fra.path(dir).join("a"), dir).unwrap();
    }
    fs::set_permissions(fra.path("shut"), fs::Permissions::from_mode(0o500)).unwrap();
    for dry in [true, false] {
        let mut call = vec!["submit", "shut/a", "open/a", "--to", "taxes@fra"];
        call.extend(dry.then_some("--dry-run"));
        let ended = fra.run(&call);
        let said = text(&ended.stderr);
        assert!(
            ended.status.code() == Some(1) && said.contains("cannot write shut/a.receipt"),
            "{said}"
        );
        assert_eq!(committed(&fra), u64::from(!dry));
    }
    fs::set_permissions(fra.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_node_without_drop_boxes_is_reported() {
    let fra = Host::founder();
    let _runs = fra.start_with("", None);
    fs::write(fra.path("a"), "a").unwrap();
    let ended = fra.run(&["submit", "a", "--to", "taxes@fra"]);
    let said = text(&ended.stderr);
    assert!(!ended.status.success() && said.contains("has no drop box"), "{said}");
    assert!(said.contains("[[drop_box]]") && !said.contains("Protocol"), "{said}");
}

#[test]
fn two_commands_at_once_commit_to_a_file_once() {
    let fra = Host::founder();
    let _runs = fra.start_with(BOX, None);
    for at in 0..5 {
        let file = format!("f{at}");
        fs::write(fra.path(&file), &file).unwrap();
        let call = || {
            let mut command = fra.command(&["submit", &file, "--to", "taxes@fra"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [call(), call()].map(|call| call.wait_with_output().unwrap());
        let codes = both.each_ref().map(|ended| ended.status.code());
        let said = both.map(|ended| text(&ended.stdout) + &text(&ended.stderr));
        // A node refuses data that it is already receiving.
        assert!(
            codes == [Some(0); 2] || codes == [Some(0), Some(4)] || codes == [Some(4), Some(0)],
            "{codes:?}: {said:?}"
        );
        assert!(fra.ok(&["submit", &file, "--to", "taxes@fra"]).contains("received by fra"));
        assert_eq!(committed(&fra), at + 1, "{file}");
    }
}

/// Whether a process handles SIGINT.
fn handles_interrupt(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 0b10 != 0)
}

#[test]
fn an_interrupted_submission_is_continued_by_the_same_command() {
    let fra = Host::founder();
    let runs = fra.start_with(BOX, None);
    fs::write(fra.path("f"), "data").unwrap();
    let call = ["submit", "f", "--to", "taxes@fra"];
    fra.ok(&[&call[..], &["--commit-only"]].concat());
    runs.signal("STOP");
    let mut command = fra.command(&call);
    let waits = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it handles Ctrl-C", || handles_interrupt(waits.id()));
    let kill = Command::new("kill").args(["-INT", &waits.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let ended = waits.wait_with_output().unwrap();
    let (out, said) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(130), "{out}{said}");
    assert!(said.contains("the same command continues"), "{said}");
    assert!(out.contains("f: committed"), "{out}");
    runs.signal("CONT");
    assert!(fra.ok(&call).contains("received by fra"));
}
