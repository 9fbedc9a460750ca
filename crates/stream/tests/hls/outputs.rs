//! The server's answers, and the directory.

use crate::live::{Server, ladder};
use std::path::Path;
use thalweg_stream::hls::{Directory, Packager, Settings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The status line, head and body of a response.
async fn get(url: &str, path: &str, host: Option<&str>) -> (u16, String, Vec<u8>) {
    let at = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(at).await.unwrap();
    let host = host.unwrap_or(at);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
    (head[9..12].parse().unwrap(), head, answer[end + 4..].to_vec())
}

#[tokio::test]
async fn the_server_answers_with_the_newest_segments_alone() {
    let server = Server::start().await;
    let (code, head, page) = get(&server.url, "/", None).await;
    assert_eq!(code, 200);
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    let page = String::from_utf8(page).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://"), "no external requests");
    assert_eq!(get(&server.url, "/stream.m3u8", None).await.0, 503, "no segment yet");
    let Some(frames) = ladder(16) else { return };
    let mut packager = Packager::new(Settings::default(), "stage", "studio");
    packager.select(1);
    for (sequence, frame) in (0..).zip(&frames) {
        let update = packager.push(sequence, std::time::Duration::ZERO, frame);
        server.window.apply(update, &packager);
    }
    let (code, head, text) = get(&server.url, "/stream.m3u8", None).await;
    assert_eq!(code, 200);
    assert!(head.contains("application/vnd.apple.mpegurl"), "{head}");
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("segment-14.m4s") && !text.contains("segment-8.m4s"), "{text}");
    assert_eq!(get(&server.url, "/segment-14.m4s", None).await.0, 200);
    assert_eq!(get(&server.url, "/segment-8.m4s", None).await.0, 200, "for slow players");
    assert_eq!(get(&server.url, "/segment-1.m4s", None).await.0, 404);
    assert_eq!(get(&server.url, "/init-0.mp4", None).await.0, 200);
    for path in ["/segment-x.m4s", "/..%2fetc%2fpasswd", "/a/b", "/init-99.mp4"] {
        assert_eq!(get(&server.url, path, None).await.0, 404, "{path}");
    }
    let master = String::from_utf8(get(&server.url, "/master.m3u8", None).await.2).unwrap();
    assert!(master.contains("CODECS=\"avc1.64000d,mp4a.40.2\""), "{master}");
    assert_eq!(server.window.status().frames[2], 32);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_read_the_stream() {
    let server = Server::start().await;
    let (code, _, body) = get(&server.url, "/status.json", Some("evil.example")).await;
    assert_eq!((code, body.starts_with(b"use this host's address")), (421, true));
    assert_eq!(get(&server.url, "/status.json", Some("localhost:1")).await.0, 200);
}

/// Packages a stream into a directory until the first error.
async fn write_to(path: &Path) -> Option<Result<(), String>> {
    let frames = ladder(16)?;
    let mut directory = match Directory::create(path).await {
        Ok(directory) => directory,
        Err(why) => return Some(Err(why.to_string())),
    };
    let mut packager = Packager::new(Settings::default(), "stage", "studio");
    packager.select(0);
    packager.continue_from(directory.start());
    for (sequence, frame) in (0..).zip(&frames) {
        let update = packager.push(sequence, std::time::Duration::ZERO, frame);
        if !update.is_empty()
            && let Err(why) = directory.apply(update, &packager).await
        {
            return Some(Err(why.to_string()));
        }
    }
    Some(Ok(()))
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_directory_holds_the_newest_segments_alone() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("hls");
    let Some(written) = write_to(&path).await else { return };
    assert_eq!(written, Ok(()));
    let names = names(&path);
    assert_eq!(names.len(), 12 + 3, "{names:?}");
    assert!(
        names.contains(&"master.m3u8".to_owned())
            && names.iter().all(|name| !name.starts_with('.'))
    );
    // ffmpeg plays it.
    let output = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-live_start_index", "0", "-i"])
        .arg(path.join("stream.m3u8"))
        .args(["-t", "5", "-f", "null", "-"])
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[tokio::test]
async fn a_later_output_continues_the_numbers_and_removes_the_files_of_the_earlier_one() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("hls");
    let Some(written) = write_to(&path).await else { return };
    assert_eq!(written, Ok(()));
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    let playlist = |line: &str| {
        let text = std::fs::read_to_string(path.join("stream.m3u8")).unwrap();
        let number = text.lines().find_map(|found| found.strip_prefix(line)?.parse::<u64>().ok());
        (number, text)
    };
    let (first, text) = playlist("#EXT-X-MEDIA-SEQUENCE:");
    let last = first.unwrap() + text.matches("#EXTINF").count() as u64 - 1;
    assert_eq!(write_to(&path).await, Some(Ok(())));
    let (second, text) = playlist("#EXT-X-MEDIA-SEQUENCE:");
    assert!(second > Some(last), "{second:?} after {last}");
    assert_eq!(playlist("#EXT-X-DISCONTINUITY-SEQUENCE:").0, Some(1), "{text}");
    assert!(text.contains("init-1.mp4") && !text.contains("init-0.mp4"), "{text}");
    let names = names(&path);
    assert_eq!(names.len(), 12 + 3 + 1, "{names:?}");
    let is_later = |name: &str| {
        let number = name.strip_prefix("segment-").and_then(|rest| rest.strip_suffix(".m4s"));
        number.is_none_or(|number| number.parse::<u64>().unwrap() > last)
    };
    assert!(names.iter().all(|name| is_later(name)), "{names:?}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("hls");
    std::fs::create_dir(&path).unwrap();
    // A directory in the place of the second segment, because a test cannot fill a disk without rights.
    std::fs::create_dir(path.join("segment-1.m4s")).unwrap();
    std::fs::write(path.join("segment-1.m4s/file"), "x").unwrap();
    let Some(written) = write_to(&path).await else { return };
    let why = written.unwrap_err();
    assert!(why.contains("segment-1.m4s") && why.starts_with("cannot write"), "{why}");
    let left = names(&path);
    assert!(
        left.contains(&"segment-0.m4s".to_owned())
            && !left.iter().any(|name| name.starts_with('.'))
    );
}
