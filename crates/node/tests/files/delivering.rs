//! Sending to a node's inbox: trees, names, existing files, and what the settings allow.

use crate::scene::{Node, introduce, name};
use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tempfile::TempDir;
use thalweg_gather::{
    Changes, Event, EventSink, Outcome, Totals,
    run::Via,
    send::{SendError, SendRequest, send},
};
use thalweg_wire::object::{
    Delivery, DescribedEntry, Entry, Failure, FilePath, FileTime, Kind, MAX_HASHED, PathState,
    Rules, Snapshot, TransferHash,
};

/// Events, in order.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<Event>>);

impl EventSink for Told {
    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// A node with an inbox, another one that sends, and a directory to send from.
pub struct Pair {
    pub to: Node,
    pub from: Node,
    here: TempDir,
    told: Arc<Told>,
}

impl Pair {
    pub async fn of(to: Node) -> Self {
        let from = Node::start(2, &[]).await;
        introduce(&[&to, &from]);
        Self { to, from, here: TempDir::new().unwrap(), told: Arc::default() }
    }

    pub async fn new() -> Self {
        Self::of(Node::start(1, &["*"]).await).await
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.here.path().join(below)
    }

    pub fn put(&self, below: &str, content: &str) -> PathBuf {
        put(&self.path(below), content);
        self.path(below)
    }

    pub fn request(&self, paths: &[&str], into: &str) -> SendRequest {
        let into = [self.to.inbox.as_os_str().as_bytes(), into.as_bytes()].concat();
        SendRequest {
            files: paths.iter().map(|path| self.path(path)).collect(),
            node: name(self.to.n),
            into,
            as_name: false,
            exclude: Vec::new(),
            fidelity: Default::default(),
            checksum: false,
            replace: false,
            delete: false,
            dry_run: false,
            list: false,
            via: Via::Named(Vec::new()),
            terms: Default::default(),
            estimates: Default::default(),
            limit: None,
        }
    }

    async fn try_send(&self, request: SendRequest) -> Result<Totals, SendError> {
        self.told.0.lock().unwrap().clear();
        send(request, self.from.dialer(), self.told.clone(), Default::default()).await
    }

    pub async fn send(&self, request: SendRequest) -> Totals {
        self.try_send(request).await.unwrap()
    }

    /// The changes besides files that the last call announced at its beginning.
    fn planned(&self) -> Option<Changes> {
        let told = self.told.0.lock().unwrap();
        told.iter().rev().find_map(|event| match event {
            Event::Started { changes, .. } => Some(*changes),
            _ => None,
        })
    }

    /// All failures and remarks.
    pub fn said(&self) -> String {
        let told = self.told.0.lock().unwrap();
        let said = told.iter().filter_map(|event| match event {
            Event::FileFailed { file, why, .. } => Some(format!("{file}: {why}\n")),
            Event::Note { text } => Some(format!("{text}\n")),
            _ => None,
        });
        said.collect()
    }
}

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    age(path, 1_000_000_000);
}

fn age(path: &Path, seconds: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Paths below `root`, with kind, mode, time, and content or target.
fn shape(root: &Path) -> Vec<String> {
    fn walk(path: &Path, below: &str, all: &mut Vec<String>) {
        let found = fs::symlink_metadata(path).unwrap();
        let mode = found.mode() & 0o7777;
        if found.is_symlink() {
            all.push(format!("{below} -> {}", fs::read_link(path).unwrap().display()));
        } else if found.is_file() {
            let content = fs::read_to_string(path).unwrap();
            all.push(format!("{below} {mode:o} {} {content}", found.mtime()));
        } else {
            all.push(format!("{below}/ {mode:o} {}", found.mtime()));
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                walk(&entry.path(), &format!("{below}/{name}"), all);
            }
        }
    }
    let mut all = Vec::new();
    walk(root, "", &mut all);
    all.sort();
    all
}

fn tree(pair: &Pair) {
    pair.put("run/a/one", "1");
    pair.put("run/b/two", "22");
    fs::create_dir_all(pair.path("run/empty/deep")).unwrap();
    fs::create_dir_all(pair.path("run/private/in")).unwrap();
    pair.put("run/private/in/key", "secret");
    symlink("../a/one", pair.path("run/b/link")).unwrap();
    symlink("gone", pair.path("run/dangling")).unwrap();
    chmod(&pair.path("run/a/one"), 0o600);
    for (path, mode) in [("private", 0o700), ("a", 0o750), ("empty/deep", 0o555), ("b", 0o2775)] {
        chmod(&pair.path("run").join(path), mode);
    }
    for (path, time) in [("empty/deep", 3), ("empty", 4), ("private/in", 5), ("b", 6), ("", 7)] {
        age(&pair.path("run").join(path), time);
    }
}

#[tokio::test]
async fn a_tree_is_delivered_whole_and_a_second_call_sends_nothing() {
    let pair = Pair::new().await;
    tree(&pair);
    let totals = pair.send(pair.request(&["run"], "/new/dir")).await;
    assert_eq!(totals.outcome, Outcome::Complete, "{}", pair.said());
    let Changes { links, directories, attributes } = totals.changes;
    assert_eq!((totals.files, links, directories, attributes), (3, 2, 7, 0));
    let there = pair.to.inbox.join("new/dir/run");
    // The set-id bits stay here.
    chmod(&pair.path("run/b"), 0o775);
    age(&pair.path("run/b"), 6);
    age(&pair.path("run"), 7);
    assert_eq!(shape(&there), shape(&pair.path("run")));
    let again = pair.send(pair.request(&["run"], "/new/dir")).await;
    assert_eq!((again.outcome, again.files, again.bytes), (Outcome::Complete, 0, 0));
    assert_eq!((again.present_files, again.files), (3, 0));
    assert!(again.changes.is_empty(), "{again:?}");
    // The same by content, into a new directory.
    let totals = pair.send(pair.request(&["run/."], "/content")).await;
    assert_eq!(totals.outcome, Outcome::Complete, "{}", pair.said());
    assert_eq!(shape(&pair.to.inbox.join("content")), shape(&pair.path("run")));
}

#[tokio::test]
async fn private_modes_are_never_wider_at_the_receiver() {
    let pair = Pair::new().await;
    let private = pair.put("p/private/key", "secret");
    chmod(private.parent().unwrap(), 0o700);
    let mode = |path: &str| fs::metadata(pair.to.inbox.join(path)).unwrap().mode() & 0o7777;
    for (paths, into, directory) in [
        ("p/private", "", "private"),
        ("p/private/", "/as-content", "as-content"),
        ("p", "/deep/er", "deep/er/p/private"),
    ] {
        pair.send(pair.request(&[paths], into)).await;
        assert_eq!(mode(directory), 0o700, "{paths} {into}: {}", pair.said());
        assert!(pair.said().is_empty(), "{}", pair.said());
    }
    // An existing directory keeps its mode, and that is reported.
    let open = pair.to.inbox.join("open/private");
    fs::create_dir_all(&open).unwrap();
    chmod(&open, 0o755);
    let totals = pair.send(pair.request(&["p/private"], "/open")).await;
    assert_eq!((totals.outcome, mode("open/private")), (Outcome::Complete, 0o755));
    assert!(pair.said().contains("keeps its mode 755"), "{}", pair.said());
    // A crash left an unfinished directory: it gets its mode with the next call.
    chmod(&open, 0o1700);
    pair.send(pair.request(&["p/private"], "/open")).await;
    assert_eq!(mode("open/private"), 0o700);
    // A sender that may replace may also narrow modes.
    let lenient = Pair::of(Node::lenient(1).await).await;
    let key = lenient.put("private/key", "secret");
    chmod(key.parent().unwrap(), 0o700);
    let there = lenient.to.inbox.join("private");
    fs::create_dir(&there).unwrap();
    chmod(&there, 0o755);
    let request = lenient.request(&["private"], "");
    lenient.send(SendRequest { replace: true, ..request }).await;
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o700);
}

#[tokio::test]
async fn a_single_file_gets_the_given_name() {
    let pair = Pair::new().await;
    pair.put("a.bin", "content");
    pair.put("VERSION", "v");
    fs::create_dir(pair.to.inbox.join("dir.bin")).unwrap();
    put(&pair.to.inbox.join("there"), "content");
    for (file, into, as_name, lands) in [
        ("a.bin", "/b.bin", false, "b.bin"),
        ("a.bin", "/new/b.bin", false, "new/b.bin"),
        ("a.bin", "/dir.bin", false, "dir.bin/a.bin"),
        ("a.bin", "/c.bin/", false, "c.bin/a.bin"),
        ("a.bin", "/there", false, "there"),
        ("a.bin", "/other", false, "other/a.bin"),
        ("VERSION", "/two", false, "two/VERSION"),
        ("VERSION", "/three", true, "three"),
        ("a.bin", "", false, "a.bin"),
    ] {
        let request = SendRequest { as_name, ..pair.request(&[file], into) };
        let totals = pair.send(request).await;
        assert_eq!(totals.outcome, Outcome::Complete, "{into}: {}", pair.said());
        let there = fs::read(pair.to.inbox.join(lands));
        assert_eq!(there.ok(), fs::read(pair.path(file)).ok(), "{file} {into}");
    }
    fs::create_dir(pair.path("set")).unwrap();
    let request = SendRequest { as_name: true, ..pair.request(&["set"], "/x") };
    assert!(matches!(pair.try_send(request).await, Err(SendError::NotOne)));
}

#[tokio::test]
async fn existing_files_are_compared_and_replaced_only_if_both_ends_allow_it() {
    for (lenient, replace, checksum, old, age_there, outcome) in [
        (false, false, false, "version 1", 1_000_000_000, Outcome::Partial),
        (false, true, false, "version 1", 1_000_000_000, Outcome::Partial),
        (true, false, false, "version 1", 1_000_000_000, Outcome::Partial),
        (true, true, false, "version 1", 1_000_000_000, Outcome::Complete),
        (true, true, true, "version 1", 1_000_000_000, Outcome::Complete),
        (true, true, false, "longer version", 5, Outcome::Complete),
        (false, false, false, "version 2", 1_000_000_000, Outcome::Complete),
        (false, false, false, "version 2", 5, Outcome::Partial),
        (false, false, true, "version 2", 5, Outcome::Complete),
        (false, false, true, "version 1", 5, Outcome::Partial),
    ] {
        let case = (lenient, replace, checksum, old, age_there);
        let to = if lenient { Node::lenient(1).await } else { Node::start(1, &["*"]).await };
        let pair = Pair::of(to).await;
        pair.put("VERSION", "version 2");
        let there = pair.to.inbox.join("VERSION");
        put(&there, old);
        age(&there, age_there);
        let request = pair.request(&["VERSION"], "");
        let totals = pair.send(SendRequest { replace, checksum, ..request.clone() }).await;
        assert_eq!(totals.outcome, outcome, "{case:?}: {}", pair.said());
        let is_new = outcome == Outcome::Complete;
        let wanted = if is_new { "version 2" } else { old };
        assert_eq!(fs::read_to_string(&there).unwrap(), wanted, "{case:?}");
        // A dry run reports what the real call does.
        put(&there, old);
        age(&there, age_there);
        let dry = SendRequest { replace, checksum, dry_run: true, ..request };
        let totals = pair.send(dry).await;
        assert_eq!(totals.failed_files, u64::from(!is_new), "{case:?}: {}", pair.said());
        assert_eq!(fs::read_to_string(&there).unwrap(), old, "{case:?}: a dry run changes nothing");
        assert_eq!(fs::read_dir(&pair.to.inbox).unwrap().count(), 1, "{case:?}");
    }
}

#[tokio::test]
async fn a_large_file_replaces_one_of_the_same_length_and_time() {
    let pair = Pair::of(Node::lenient(1).await).await;
    let (new, old) = ("n".repeat(3_000_000), "o".repeat(3_000_000));
    pair.put("big", &new);
    let there = pair.to.inbox.join("big");
    put(&there, &old);
    let request = pair.request(&["big"], "");
    assert_eq!(pair.send(request.clone()).await.outcome, Outcome::Partial);
    assert!(fs::read_to_string(&there).unwrap() == old);
    let totals = pair.send(SendRequest { replace: true, ..request }).await;
    assert_eq!(totals.outcome, Outcome::Complete, "{}", pair.said());
    assert!(fs::read_to_string(&there).unwrap() == new);
    assert_eq!(fs::read_dir(&pair.to.inbox).unwrap().count(), 1, "nothing is left");
}

#[tokio::test]
async fn a_replaced_file_that_was_removed_or_altered_is_sent_again() {
    let pair = Pair::of(Node::lenient(1).await).await;
    let (new, old) = ("n".repeat(3_000_000), "o".repeat(3_000_000));
    pair.put("big", &new);
    let there = pair.to.inbox.join("big");
    let request = || SendRequest { replace: true, checksum: true, ..pair.request(&["big"], "") };
    pair.send(request()).await;
    let alterations: [&dyn Fn(); 3] = [
        &|| fs::remove_file(&there).unwrap(),
        &|| fs::write(&there, "n".repeat(3_000_001)).unwrap(),
        &|| put(&there, &old),
    ];
    for (number, alter) in alterations.iter().enumerate() {
        alter();
        let totals = pair.send(request()).await;
        assert_eq!(totals.outcome, Outcome::Complete, "{number}: {}", pair.said());
        assert!(fs::read_to_string(&there).unwrap() == new, "{number}");
    }
}

#[tokio::test]
async fn extraneous_files_are_removed_only_if_both_ends_allow_it() {
    let make = |pair: &Pair| {
        pair.put("set/kept", "1");
        pair.put("set/in/kept", "2");
        pair.put("set/skipped.o", "3");
        let inbox = &pair.to.inbox;
        for gone in ["set/gone", "set/in/gone", "set/old/deep/er/gone", "beside"] {
            put(&inbox.join(gone), "x");
        }
        put(&inbox.join("set/skipped.o"), "kept there");
        symlink("../beside", inbox.join("set/link")).unwrap();
    };
    let pair = Pair::new().await;
    make(&pair);
    let request = |pair: &Pair| SendRequest {
        delete: true,
        exclude: vec![b"*.o".to_vec()],
        ..pair.request(&["set"], "")
    };
    let totals = pair.send(request(&pair)).await;
    assert_eq!(totals.outcome, Outcome::Partial);
    assert!(pair.said().contains("remove = true"), "{}", pair.said());
    assert!(pair.to.inbox.join("set/gone").exists());

    let pair = Pair::of(Node::lenient(1).await).await;
    make(&pair);
    let dry = SendRequest { dry_run: true, ..request(&pair) };
    assert_eq!(pair.send(dry).await.outcome, Outcome::Planned, "{}", pair.said());
    assert!(pair.said().contains("would be removed"), "{}", pair.said());
    assert!(pair.to.inbox.join("set/gone").exists() && !pair.to.inbox.join("set/kept").exists());
    let totals = pair.send(request(&pair)).await;
    assert_eq!(totals.outcome, Outcome::Complete, "{}", pair.said());
    let names = |path: &str| {
        let all = fs::read_dir(pair.to.inbox.join(path)).unwrap();
        let mut all: Vec<_> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    };
    assert_eq!(names(""), ["beside", "set"], "only in what was sent");
    assert_eq!(names("set"), ["in", "kept", "skipped.o"], "what is left out is left alone");
    assert_eq!(names("set/in"), ["kept"]);
    // Unreadable entries here might be the ones that are there.
    put(&pair.to.inbox.join("set/precious"), "x");
    let mut half = request(&pair);
    half.files.push(pair.path("unmounted"));
    assert_eq!(pair.send(half).await.outcome, Outcome::Partial);
    assert!(pair.to.inbox.join("set/precious").exists());
}

/// Makes something of a kind: a file, large file, link, empty directory, directory with a file in it, or pipe.
fn make(path: &Path, kind: char) {
    match kind {
        'f' => put(path, "x"),
        'L' => put(path, &"x".repeat(300_000)),
        'l' => symlink("elsewhere", path).unwrap(),
        'e' => fs::create_dir(path).unwrap(),
        'n' => put(&path.join("precious"), "x"),
        _ => {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        }
    }
}

fn kind_of(path: &Path) -> char {
    let found = path.symlink_metadata().unwrap();
    match found.file_type() {
        kind if kind.is_dir() && path.join("precious").exists() => 'n',
        kind if kind.is_dir() => 'e',
        kind if kind.is_symlink() => 'l',
        kind if kind.is_file() && found.len() > 1 => 'L',
        kind if kind.is_file() => 'f',
        _ => 'p',
    }
}

/// What rsync makes of it, and whether it succeeds; `None` if it is not installed.
fn by_rsync(sent: char, there: char, delete: bool) -> Option<(char, bool)> {
    let directory = TempDir::new().unwrap();
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    for (path, kind) in [(&from, sent), (&to, there)] {
        fs::create_dir(path).unwrap();
        make(&path.join("x"), kind);
    }
    let mut rsync = std::process::Command::new("rsync");
    let rsync = rsync.arg("-a").args(delete.then_some("--delete"));
    let ended = rsync.arg(from.join("")).arg(&to).output().ok()?;
    Some((kind_of(&to.join("x")), ended.status.success()))
}

#[tokio::test]
async fn entries_of_another_kind_are_replaced_as_by_rsync() {
    let pair = Pair::of(Node::lenient(1).await).await;
    let mut number = 0;
    for sent in ['f', 'L', 'l', 'e', 'n'] {
        for there in ['f', 'l', 'e', 'n', 'p'] {
            let is_same_kind =
                matches!((sent, there), ('f', 'f') | ('l', 'l') | ('e' | 'n', 'e' | 'n'));
            for (replace, delete) in [(false, false), (true, false), (true, true), (false, true)] {
                number += 1;
                let what =
                    format!("{sent} sent, {there} there, replace {replace}, delete {delete}");
                let set = format!("set{number}");
                fs::create_dir(pair.path(&set)).unwrap();
                make(&pair.path(&set).join("x"), sent);
                let at = pair.to.inbox.join(&set).join("x");
                fs::create_dir(at.parent().unwrap()).unwrap();
                make(&at, there);
                let request = SendRequest { replace, delete, ..pair.request(&[&set], "") };
                let dry = SendRequest { dry_run: true, ..request.clone() };
                let foretold = pair.send(dry).await;
                assert_eq!(kind_of(&at), there, "{what}: a dry run changes nothing");
                let totals = pair.send(request).await;
                let is_file = matches!(sent, 'f' | 'L' | 'l');
                let is_kept = !is_same_kind && (!replace || there == 'n' && is_file && !delete);
                let becomes = match (is_kept, sent, there) {
                    (true, ..) => there,
                    (_, 'e', 'n') if !delete => 'n',
                    _ => sent,
                };
                let complete = totals.outcome == Outcome::Complete;
                assert_eq!(
                    (kind_of(&at), complete),
                    (becomes, !is_kept),
                    "{what}: {}",
                    pair.said()
                );
                assert_eq!(foretold.outcome == Outcome::Planned, complete, "{what}: foretold");
                assert!(!is_kept || pair.said().contains("--"), "{what}: {}", pair.said());
                if replace {
                    let rsync = by_rsync(sent, there, delete);
                    let same = rsync.is_none_or(|made| made == (becomes, !is_kept));
                    assert!(same, "{what}: rsync made {rsync:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_directory_with_content_is_replaced_only_if_the_settings_allow_it() {
    let accept = thalweg_files::AcceptingDirectory { replace: true, ..Default::default() };
    let pair = Pair::of(Node::accepting(1, accept).await).await;
    pair.put("set/x", "x");
    put(&pair.to.inbox.join("set/x/precious"), "x");
    let request = SendRequest { replace: true, delete: true, ..pair.request(&["set/x"], "/set") };
    assert_eq!(pair.send(request).await.outcome, Outcome::Partial);
    assert!(pair.said().contains("remove = true"), "{}", pair.said());
    assert!(pair.to.inbox.join("set/x/precious").exists());
}

#[tokio::test]
async fn links_directories_and_attributes_are_counted() {
    let pair = Pair::of(Node::lenient(1).await).await;
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let set_old = |path: &Path| {
        let times = fs::FileTimes::new().set_modified(old);
        fs::File::open(path).unwrap().set_times(times).unwrap();
    };
    pair.put("set/file", "1");
    pair.put("set/in/file", "2");
    symlink("file", pair.path("set/link")).unwrap();
    let request = || SendRequest { replace: true, checksum: true, ..pair.request(&["set"], "") };
    pair.send(request()).await;
    let changes = |links, directories, attributes| Changes { links, directories, attributes };
    type Change<'a> = (&'a str, Box<dyn Fn() + 'a>, Changes);
    let cases: [Change<'_>; 7] = [
        ("nothing", Box::new(|| ()), changes(0, 0, 0)),
        ("a mode", Box::new(|| chmod(&pair.path("set/file"), 0o600)), changes(0, 0, 1)),
        ("a time", Box::new(|| set_old(&pair.path("set/file"))), changes(0, 0, 1)),
        ("a directory's time", Box::new(|| set_old(&pair.path("set/in"))), changes(0, 0, 1)),
        ("a directory's mode", Box::new(|| chmod(&pair.path("set/in"), 0o700)), changes(0, 0, 1)),
        (
            "a directory",
            Box::new(|| {
                fs::create_dir(pair.path("set/new")).unwrap();
                set_old(&pair.path("set"));
            }),
            changes(0, 1, 1),
        ),
        (
            "a link",
            Box::new(|| {
                symlink("file", pair.path("set/in/link")).unwrap();
                set_old(&pair.path("set/in"));
            }),
            changes(1, 0, 0),
        ),
    ];
    for (what, change, expected) in cases {
        change();
        let dry = pair.send(SendRequest { dry_run: true, ..request() }).await;
        assert!(dry.changes.is_empty() && dry.outcome == Outcome::Planned, "{what}: {dry:?}");
        assert_eq!(pair.planned(), Some(expected), "{what}");
        let totals = pair.send(request()).await;
        assert_eq!((totals.files, totals.changes), (0, expected), "{what}: {}", pair.said());
        assert_eq!(pair.planned(), Some(expected), "{what}");
    }
    chmod(&pair.path("set/file"), 0o4755);
    chmod(&pair.path("set/in"), 0o2755);
    let totals = pair.send(request()).await;
    assert_eq!((totals.outcome, totals.special_bits), (Outcome::Complete, 2));
    assert!(
        pair.said().contains("bits of 2 files and directories are not kept"),
        "{}",
        pair.said()
    );
}

#[tokio::test]
async fn a_link_never_leads_out_of_the_inbox() {
    let pair = Pair::new().await;
    fs::create_dir_all(pair.path("set/in")).unwrap();
    let inside = format!("{}/set", pair.to.inbox.display());
    for (link, target, is_taken) in [
        ("up", "..", true),
        ("out", "../..", false),
        ("in/far", "../../../etc", false),
        ("in/near", "../../set", true),
        ("abs", "/etc/passwd", false),
        ("abs-in", &inside, true),
        ("dots", "in/../../..", false),
        ("plain", "in", true),
        ("gone", "not/there", true),
    ] {
        let path = pair.path("set").join(link);
        symlink(target, &path).unwrap();
        // A dry run, before the link is there, reports the same.
        let dry = SendRequest { dry_run: true, ..pair.request(&["set"], "") };
        let failed = pair.send(dry).await.failed_files;
        assert_eq!(failed, u64::from(!is_taken), "{link}: {}", pair.said());
        let totals = pair.send(pair.request(&["set"], "")).await;
        let outcome = if is_taken { Outcome::Complete } else { Outcome::Partial };
        assert_eq!(totals.outcome, outcome, "{link}: {}", pair.said());
        let there = fs::read_link(pair.to.inbox.join("set").join(link));
        assert_eq!(there.is_ok(), is_taken, "{link}");
        assert_eq!(pair.said().contains("out of the inbox"), !is_taken, "{}", pair.said());
        fs::remove_file(&path).unwrap();
    }
    // Nothing is written through an existing link.
    pair.put("set/through/file", "x");
    symlink(&pair.to.data, pair.to.inbox.join("set/through")).unwrap();
    assert_eq!(pair.send(pair.request(&["set"], "")).await.outcome, Outcome::Partial);
    assert_eq!(fs::read_dir(&pair.to.data).unwrap().count(), 0);
}

#[tokio::test]
async fn many_small_files_are_sent_in_batches_and_a_bad_one_stops_no_other() {
    let pair = Pair::new().await;
    for n in 0..3000 {
        put(&pair.path(&format!("set/{}/f{n}", n % 50)), &format!("content {n}"));
    }
    put(&pair.to.inbox.join("set/7/f7"), "another");
    fs::create_dir_all(pair.to.inbox.join("set/8/f8")).unwrap();
    let totals = pair.send(pair.request(&["set"], "")).await;
    assert_eq!((totals.outcome, totals.files), (Outcome::Partial, 2998), "{}", pair.said());
    assert!(
        pair.said().contains("f7: a file or link with this name and other content exists"),
        "{}",
        pair.said()
    );
    assert!(pair.said().contains("f8: a directory"), "{}", pair.said());
    for n in (0..3000).filter(|n| ![7, 8].contains(n)) {
        let there = pair.to.inbox.join(format!("set/{}/f{n}", n % 50));
        assert_eq!(fs::read_to_string(there).unwrap(), format!("content {n}"));
    }
    let line = format!("{:?}", pair.told.0.lock().unwrap());
    assert!(!line.contains("WayClosed"), "{line}");
}

#[tokio::test]
async fn two_files_of_one_name_are_refused_before_anything_is_sent() {
    let pair = Pair::new().await;
    pair.put("a/VERSION", "1");
    pair.put("b/VERSION", "2");
    let sent = pair.try_send(pair.request(&["a/VERSION", "b/VERSION"], "/one")).await;
    assert!(matches!(&sent, Err(SendError::NameClash(clashes)) if clashes.len() == 1), "{sent:?}");
    assert_eq!(fs::read_dir(&pair.to.inbox).unwrap().count(), 0);
}

fn entry(path: &str, kind: Kind) -> Entry {
    let (path, modified) = (FilePath::new(path.into()).unwrap(), FileTime::from_nanos(5));
    Entry { root: 0, path, kind, mode: 0o6777, owner: 0, group: 0, modified, more: None }
}

fn of_size(size: u64) -> Kind {
    let snapshot = Snapshot { device: 1, inode: 2, size, modified_ns: 5, changed_ns: 5 };
    Kind::File { snapshot }
}

#[tokio::test]
async fn requests_of_a_hostile_member_are_refused() {
    let pair = Pair::new().await;
    let into = pair.to.inbox.as_os_str().as_bytes();
    let mut remote = pair.from.open(&pair.to, &[]).await;
    let delivery = |into: &[u8], all: Vec<Entry>| Delivery {
        into: into.to_vec(),
        rules: Rules::REPLACE,
        entries: all.into_iter().map(DescribedEntry).collect(),
        owners: Default::default(),
    };
    // Bytes that do not match the files.
    for (size, bytes) in [(5, "four"), (3, "four"), (u64::MAX, "four")] {
        let all = vec![entry("a", of_size(size))];
        remote.ask_put(delivery(into, all), bytes.into()).await.unwrap();
        assert!(
            remote.receive_delivery_result().await.unwrap_err().to_string().contains("lengths")
        );
    }
    // Directories where nothing is accepted.
    for other in [&b"/tmp"[..], b"/", b"", pair.to.data.as_os_str().as_bytes()] {
        let all = vec![entry("a", of_size(1))];
        remote.ask_put(delivery(other, all.clone()), "1".into()).await.unwrap();
        let put = remote.receive_delivery_result().await.unwrap_err();
        remote.ask_compare(delivery(other, all.clone()), Vec::new()).await.unwrap();
        let compared = remote.receive_comparison(1).await.unwrap_err();
        let dressed = remote.set_metadata(delivery(other, all)).await.unwrap_err();
        for why in [put, compared, dressed] {
            assert!(why.to_string().contains("does not offer"), "{why}");
        }
    }
    // Reserved names, special files, and replacements without the right to replace.
    put(&pair.to.inbox.join("there"), "kept");
    let all = vec![
        entry(".a.thalweg-part", of_size(1)),
        entry("thing", Kind::Special),
        entry("there", of_size(1)),
        entry("", of_size(1)),
        entry("good", of_size(1)),
    ];
    remote.ask_put(delivery(into, all), "1234".into()).await.unwrap();
    let undone = remote.receive_delivery_result().await.unwrap_or_else(|why| panic!("{why}"));
    let mut numbers: Vec<u32> = undone.failures().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3], "{undone:?}");
    assert_eq!(fs::read_to_string(pair.to.inbox.join("there")).unwrap(), "kept");
    let good = fs::metadata(pair.to.inbox.join("good")).unwrap();
    assert_eq!(good.mode() & 0o7777, 0o777, "no bits that give somebody's rights");
    assert_eq!(fs::read_dir(&pair.to.inbox).unwrap().count(), 2);
    // The inbox itself keeps its mode.
    let before = fs::metadata(&pair.to.inbox).unwrap().mode();
    remote.set_metadata(delivery(into, vec![entry("", Kind::Directory)])).await.unwrap();
    assert_eq!(fs::metadata(&pair.to.inbox).unwrap().mode(), before);
    let why = undone.failures().find(|(number, _)| *number == 2).map(|(_, why)| why.clone());
    assert!(matches!(why, Some(Failure::System(why)) if why.contains("replace = true")));
}

#[tokio::test]
async fn a_delivery_stays_within_the_bounds_of_the_directory_and_names_them() {
    let limits = thalweg_files::Limits { max_entries: 5, max_depth: 2, ..Default::default() };
    let accept = thalweg_files::AcceptingDirectory { limits, ..Default::default() };
    let pair = Pair::of(Node::accepting(1, accept).await).await;
    let into = pair.to.inbox.as_os_str().as_bytes();
    let mut remote = pair.from.open(&pair.to, &[]).await;
    let all = [
        entry("a", Kind::Directory),
        entry("a/b", Kind::Directory),
        entry("a/b/c", of_size(1)),
        // Too deep.
        entry("a/b/d/e", of_size(1)),
        entry("f", of_size(1)),
        entry("l", Kind::Symlink { target: b"f".to_vec() }),
        // One entry too many in each.
        entry("g", of_size(1)),
        entry("h", Kind::Directory),
        entry("m", Kind::Symlink { target: b"f".to_vec() }),
        entry("i/j", of_size(1)),
        // A file with this name exists.
        entry("a", Kind::Directory),
        entry("a/b/d", Kind::Directory),
    ];
    let delivery = Delivery {
        into: into.to_vec(),
        rules: Rules::default(),
        entries: all.into_iter().map(DescribedEntry).collect(),
        owners: Default::default(),
    };
    remote.ask_put(delivery, "11111".into()).await.unwrap();
    let undone = remote.receive_delivery_result().await.unwrap_or_else(|why| panic!("{why}"));
    let mut numbers: Vec<u32> = undone.failures().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 6, 7, 8, 9, 11], "{undone:?}");
    for (number, why) in undone.failures() {
        let setting = if matches!(number, 3 | 11) { "`max_depth`" } else { "`max_entries`" };
        assert!(why.to_string().contains(setting), "{number}: {why}");
    }
    assert_eq!(fs::read_dir(&pair.to.inbox).unwrap().count(), 3);
}

/// Directories, links, empty files and extended attributes take space on the disk.
#[tokio::test]
async fn entries_without_content_take_space_as_well() {
    let max_bytes = Some(thalweg_units::ByteSize::from_bytes(4 * 4096));
    let limits = thalweg_files::Limits { max_bytes, ..Default::default() };
    let accept = thalweg_files::AcceptingDirectory { limits, ..Default::default() };
    let pair = Pair::of(Node::accepting(1, accept).await).await;
    let into = pair.to.inbox.as_os_str().as_bytes();
    let mut remote = pair.from.open(&pair.to, &[]).await;
    let mut put = async |entries: Vec<Entry>| {
        let delivery = Delivery {
            into: into.to_vec(),
            rules: Rules::default(),
            entries: entries.into_iter().map(DescribedEntry).collect(),
            owners: Default::default(),
        };
        remote.ask_put(delivery, "".into()).await.unwrap();
        let undone = remote.receive_delivery_result().await.unwrap_or_else(|why| panic!("{why}"));
        undone.failures().for_each(|(_, why)| assert!(why.to_string().contains("`max_bytes`")));
        let mut numbers: Vec<u32> = undone.failures().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    };
    let xattrs =
        vec![thalweg_wire::object::Xattr { name: b"user.a".to_vec(), value: vec![1; 13_000] }];
    let more = Some(Box::new(thalweg_wire::object::ExtraMetadata { xattrs, ..Default::default() }));
    assert_eq!(put(vec![Entry { more, ..entry("x", of_size(0)) }]).await, [0]);
    let link = || entry("l", Kind::Symlink { target: b"f".to_vec() });
    let all = vec![
        entry("d", Kind::Directory),
        link(),
        entry("f", of_size(0)),
        entry("e", Kind::Directory),
        entry("g", Kind::Directory),
        entry("h", of_size(0)),
        // This link exists already.
        link(),
    ];
    assert_eq!(put(all).await, [4, 5]);
}

#[tokio::test]
async fn only_its_creator_finishes_a_private_directory() {
    let [to, maker, other] =
        [Node::start(1, &["*"]).await, Node::start(2, &[]).await, Node::start(3, &[]).await];
    introduce(&[&to, &maker, &other]);
    let (made, deep) = ("private", "into/deep");
    let delivery = |into: &str, path: &str| Delivery {
        into: to.inbox.join(into).as_os_str().as_bytes().to_vec(),
        rules: Rules::default(),
        entries: vec![DescribedEntry(entry(path, Kind::Directory))],
        owners: Default::default(),
    };
    let mode = |path: &str| fs::metadata(to.inbox.join(path)).unwrap().mode() & 0o7777;
    let all = || [delivery("", made), delivery(deep, "")];
    let mut remote = maker.open(&to, &[]).await;
    for delivery in all() {
        remote.ask_put(delivery, Default::default()).await.unwrap();
        assert_eq!(remote.receive_delivery_result().await.unwrap().failures().count(), 0);
    }
    // The sticky bit marks an unfinished directory.
    assert_eq!([mode(made), mode(deep)], [0o1700; 2]);
    let mut stranger = other.open(&to, &[]).await;
    for delivery in all() {
        stranger.set_metadata(delivery).await.unwrap();
    }
    assert_eq!([mode(made), mode(deep)], [0o1700; 2], "another member opens nothing");
    for delivery in all() {
        remote.set_metadata(delivery).await.unwrap();
    }
    assert_eq!([mode(made), mode(deep)], [0o777; 2]);
    for path in [made, deep] {
        let known = rustix::fs::listxattr(to.inbox.join(path), &mut [0_u8; 0]).unwrap();
        assert_eq!(known, 0, "{path}: nothing is left of the note who made it");
    }
}

#[tokio::test]
async fn the_bytes_that_one_request_hashes_are_bounded() {
    let pair = Pair::new().await;
    let create = |name: &str, size| {
        let path = pair.to.inbox.join(name);
        fs::File::create(&path).unwrap().set_len(size).unwrap();
    };
    create("small", 1);
    create("huge", MAX_HASHED);
    let delivery = |rules, all: &[(&str, u64)]| Delivery {
        into: pair.to.inbox.as_os_str().as_bytes().to_vec(),
        rules,
        entries: all
            .iter()
            .map(|(path, size)| DescribedEntry(entry(path, of_size(*size))))
            .collect(),
        owners: Default::default(),
    };
    let mut remote = pair.from.open(&pair.to, &[]).await;
    for (all, why) in [
        (&[("small", 1), ("small", 1)][..], "contains it twice"),
        (&[("small", 1), ("huge", MAX_HASHED)], "request less at a time"),
    ] {
        let checks = vec![TransferHash([0; 32]); all.len()];
        remote.ask_compare(delivery(Rules::WHOLE, all), checks).await.unwrap();
        let compared = remote.receive_comparison(all.len()).await.unwrap();
        let PathState::Refused(last) = compared.found[1] else { panic!("{compared:?}") };
        let said = compared.reasons[usize::from(last)].to_string();
        assert!(said.contains(why), "{said}");
    }
}
