//! The static file server has the features that a download manager needs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tool_support;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};
use tool_support::{ServerTool, run_failing};

struct FileAnswer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl FileAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v).next()
    }
}

fn ask(server: &ServerTool, method: &str, path: &str, headers: &str) -> FileAnswer {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    FileAnswer { status, head, body: answer[end + 4..].to_vec() }
}

fn serve(content: &[u8]) -> (tempfile::TempDir, ServerTool) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a file"), content).unwrap();
    let server =
        ServerTool::start(&["http", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    (dir, server)
}

fn content() -> Vec<u8> {
    (0..1_000_003u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect()
}

#[test]
fn whole_files_and_ranges_have_the_right_bytes() {
    let content = content();
    let (_dir, server) = serve(&content);
    let whole = ask(&server, "GET", "/a%20file", "");
    assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("bytes")));
    assert!(whole.body == content);
    let part = ask(&server, "GET", "/a%20file", "Range: bytes=999990-1000010\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &content[999_990..]));
    assert_eq!(part.header("content-range"), Some("bytes 999990-1000002/1000003"));
    let beyond = ask(&server, "GET", "/a%20file", "Range: bytes=2000000-\r\n");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */1000003")));
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let content = content();
    let (_dir, server) = serve(&content);
    let (get, head) = (ask(&server, "GET", "/a%20file", ""), ask(&server, "HEAD", "/a%20file", ""));
    assert_eq!((head.status, head.body.len()), (200, 0));
    for name in ["content-length", "etag", "last-modified"] {
        assert!(get.header(name).is_some(), "no {name}");
        assert_eq!(get.header(name), head.header(name));
    }
}

#[test]
fn if_range_gives_the_whole_file_if_it_has_changed() {
    let (dir, server) = serve(b"first version");
    let before = ask(&server, "HEAD", "/a%20file", "");
    let etag = before.header("etag").unwrap();
    let resume = |v: &str| {
        ask(&server, "GET", "/a%20file", &format!("Range: bytes=6-\r\nIf-Range: {v}\r\n"))
    };
    assert_eq!(resume(etag).body, b"version");
    assert_eq!(resume(before.header("last-modified").unwrap()).status, 206);
    assert_eq!(resume(&format!("W/{etag}")).status, 200);
    fs::write(dir.path().join("a file"), b"another version").unwrap();
    let changed = resume(etag);
    assert_eq!((changed.status, &changed.body[..]), (200, &b"another version"[..]));
    assert_ne!(changed.header("etag"), Some(etag));
}

#[test]
fn nothing_outside_the_directory_is_served() {
    let (dir, server) = serve(b"inside");
    let secret = dir.path().with_extension("secret");
    fs::write(&secret, b"outside").unwrap();
    let name = secret.file_name().unwrap().to_str().unwrap();
    for path in [format!("/../{name}"), format!("/%2e%2e/{name}"), format!("/..%2f{name}")] {
        assert_eq!(ask(&server, "GET", &path, "").status, 404, "{path}");
    }
    fs::remove_file(&secret).unwrap();
    assert_eq!(ask(&server, "DELETE", "/a%20file", "").status, 405);
    assert!(dir.path().join("a file").exists());
}

#[test]
fn a_missing_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none").display().to_string();
    let message = run_failing(&["http", &none, "--listen", "127.0.0.1:0"]);
    assert!(message.contains(&format!("{none} is not a directory")), "{message}");
}
