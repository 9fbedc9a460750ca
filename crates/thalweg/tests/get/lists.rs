//! Several downloads in one command.

use super::*;
use std::{fs, io::Write};
use tempfile::TempDir;

/// As [`run`], with this text on standard input.
async fn run_with_input(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut command = thalweg(dir, args);
    command.stdin(Stdio::piped());
    let input = input.to_owned();
    let run = move || {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_on_standard_input_with_comments_and_names() {
    let version = Version::new(1, 50_000);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let list = format!(
        "# two files\n\n{}\r\n  {}\tsub/../../other name\n",
        url(&server, "a.bin"),
        url(&server, "b.bin")
    );
    let output = run_with_input(dir.path(), &["-P", "in/here", "-"], &list).await;
    assert_done(&output);
    let made = dir.path().join("in/here");
    assert_eq!(names(&made), ["a.bin", "sub"]);
    assert_eq!(names(&made.join("sub")), ["other name"]);
    assert!(fs::read(made.join("sub/other name")).unwrap() == version.bytes);
    let said = text(&output.stderr);
    assert!(said.lines().last().unwrap().starts_with("2 of 2 files, 100 kB in "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_is_named_and_the_other_downloads_continue() {
    let version = Version::new(1, 1000);
    let server = Server::start(&version, |ask, reply| {
        if ask.path.ends_with("gone") {
            reply.status(404);
        }
    })
    .await;
    let dir = TempDir::new().unwrap();
    let list = format!("{}\nexample.org/x\n{}\n", url(&server, "gone"), url(&server, "there"));
    fs::write(dir.path().join("list"), list).unwrap();
    let output = run(dir.path(), &["-i", "list", "--json"]).await;
    assert_eq!(output.status.code(), Some(3), "the first in the list: {}", text(&output.stderr));
    assert_eq!(names(dir.path()), ["list", "there"]);
    let events = events(&output);
    let of = |name: &str| events.iter().filter(|e| e["event"] == name).collect::<Vec<_>>();
    let mut failed: Vec<_> =
        of("failed").iter().map(|e| (&e["download"], &e["exit_code"])).collect();
    failed.sort_by_key(|(download, _)| download.as_u64());
    assert_eq!(failed, [(&0.into(), &3.into()), (&1.into(), &2.into())]);
    let finished = of("finished");
    assert_eq!((finished.len(), &finished[0]["download"]), (1, &2.into()));
    assert_eq!(finished[0]["url"], url(&server, "there"));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["failed"]), (&"summary".into(), &2.into()));
    let said = text(&output.stderr);
    assert!(said.contains("/dir/gone") && said.contains("`https://example.org/x`"), "{said}");
    assert!(said.contains("line 2 of list"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_early_starts_nothing_after_a_failure() {
    let server = Server::start(&Version::new(1, 10), |_, reply| reply.status(404)).await;
    let dir = TempDir::new().unwrap();
    let urls: Vec<String> = (0..20).map(|i| url(&server, &format!("f{i}"))).collect();
    let mut args: Vec<&str> = urls.iter().map(String::as_str).collect();
    args.extend(["--fail-early", "--parallel", "1"]);
    let output = run(dir.path(), &args).await;
    assert_eq!(output.status.code(), Some(3));
    let asked = server.asks().iter().any(|ask| ask.path != "/dir/f0");
    assert!(!asked, "{:?}", server.asks());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_downloads_never_write_one_file() {
    let server = Server::honest(&Version::new(1, 1000)).await;
    let dir = TempDir::new().unwrap();
    let (a, b) = (url(&server, "x"), format!("http://{}/elsewhere/x", server.address));
    let output = run(dir.path(), &[&a, &b]).await;
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("x is the target of another download of this command"), "{said}");
    assert!(server.asks().iter().all(|ask| ask.path == "/dir/x"));
    let output = run(dir.path(), &[&a, &b, "-o", "1", "-o", "2", "--quiet"]).await;
    assert_done(&output);
    assert!(output.stderr.is_empty());
    assert_eq!(names(dir.path()), ["1", "2", "x"]);
}

/// As saved by Notepad, PowerShell, Excel and old editors, or joined from several files.
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_in_any_common_encoding() {
    fn wide(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(order).collect()
    }
    let version = Version::new(1, 1000);
    let server = Server::honest(&version).await;
    let lines =
        ["a b.bin", "caf\u{e9}.bin\tcaf\u{e9}", "c.bin?x=[1]|2"].map(|name| url(&server, name));
    let text = format!("# three\r\n{}\r\n", lines.join("\r\n"));
    let mark = "\u{feff}".to_owned();
    for (name, list) in [
        ("plain", text.clone().into_bytes()),
        ("LF", text.replace("\r\n", "\n").into_bytes()),
        ("CR", text.replace("\r\n", "\r").into_bytes()),
        ("no last end", text.trim_end().as_bytes().to_vec()),
        ("UTF-8 with a mark", (mark.clone() + &text).into_bytes()),
        ("marks in the middle", text.replace("http", "\u{feff}http").into_bytes()),
        ("UTF-16 LE", wide(&(mark.clone() + &text), u16::to_le_bytes)),
        ("UTF-16 BE", wide(&(mark + &text), u16::to_be_bytes)),
        ("UTF-16 LE without a mark", wide(&text, u16::to_le_bytes)),
        ("UTF-16 BE without a mark", wide(&text, u16::to_be_bytes)),
        ("Latin-1", text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()),
        ("DOS", (text.clone() + "\u{1a}").into_bytes()),
        ("two in one line of blanks", format!("  {}  \t \r\n", text.trim()).into_bytes()),
    ] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("list"), list).unwrap();
        let output = run(dir.path(), &["-P", "in", "-i", "list"]).await;
        assert!(output.status.success(), "{name}: {}", text_of(&output));
        assert_eq!(names(&dir.path().join("in")), ["a b.bin", "c.bin", "caf\u{e9}"], "{name}");
    }
}

/// If aria2 is installed, its result is compared, too.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_aria2_are_read_with_their_options() {
    let version = Version::new(1, 50_000);
    let server = Server::start(&version, |ask, reply| {
        if ask.path.ends_with("gone") {
            reply.status(404);
        }
    })
    .await;
    let (a, gone) = (url(&server, "a.bin"), url(&server, "gone"));
    let hash = format!("{:x}", <sha2::Sha256 as sha2::Digest>::digest(&version.bytes));
    for (list, expected) in [
        (format!("{a}\n  out=x\n"), &["x"][..]),
        (format!("# c\n{a}\r\n\tout=x y\r\n#  out=no\r\n"), &["x y"]),
        (format!("{a}\n  dir=d\n"), &["d/a.bin"]),
        (format!("{a}\n dir=d/e\n out=x\n{a}\n"), &["a.bin", "d/e/x"]),
        (format!("{gone}\t{a}\n  out=x\n"), &["x"]),
        (format!("{gone}\t{a}\n  out=x\n  checksum=sha-256={hash}\n"), &["x"]),
        (format!("{a}\n  max-tries=2\n  out=x\n"), &["x"]),
        (format!("{a}\n  checksum=sha-256={}\n", "0".repeat(64)), &[]),
    ] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("list"), &list).unwrap();
        let output = run(dir.path(), &["-P", "in", "-i", "list"]).await;
        let found = files_below(&dir.path().join("in"));
        assert_eq!(found, expected, "{list}: {}", text_of(&output));
        assert_eq!(output.status.success(), !expected.is_empty(), "{list}");
        fs::create_dir(dir.path().join("aria")).unwrap();
        let mut aria2 = Command::new("aria2c");
        aria2.args(["-q", "--no-conf", "-i", "../list"]).current_dir(dir.path().join("aria"));
        let ran =
            tokio::task::spawn_blocking(move || aria2.output().is_ok_and(|o| o.status.success()));
        if ran.await.unwrap() {
            assert_eq!(files_below(&dir.path().join("aria")), expected, "{list}");
        }
    }
    let asked = server.asks().iter().any(|ask| ask.path.contains("out="));
    assert!(!asked, "no option is a URL");
}

/// The names of all files below `dir`, sorted.
fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(dir) {
        match dir.join(&name).is_dir() {
            true => {
                found.extend(files_below(&dir.join(&name)).iter().map(|f| format!("{name}/{f}")))
            }
            false => found.push(name),
        }
    }
    found
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn unencoded_urls_are_accepted() {
    let version = Version::new(1, 1000);
    let server = Server::honest(&version).await;
    let dir = TempDir::new().unwrap();
    let list =
        [" x y.bin", "caf\u{e9}.bin", "100%.bin", "a<b>{c}.bin"].map(|name| url(&server, name));
    let args: Vec<&str> = list.iter().map(String::as_str).collect();
    assert_done(&run(dir.path(), &args).await);
    assert_eq!(names(dir.path()).len(), 4, "{:?}", names(dir.path()));
    let asked: Vec<String> = server.asks().into_iter().map(|a| a.path).collect();
    for path in
        ["/dir/%20x%20y.bin", "/dir/caf%C3%A9.bin", "/dir/100%25.bin", "/dir/a%3Cb%3E%7Bc%7D.bin"]
    {
        assert!(asked.iter().any(|a| a == path), "{path}: {asked:?}");
    }
}
