//! The counts of a download, from the scripted server or from an access log.

use anyhow::Context as _;
use serde::Deserialize;
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// The longest wait for the end of a client's last connection and for its line in the log; after that the counts known
/// by then are used.
const SETTLES: Duration = Duration::from_secs(2);
/// The interval between two reads.
const LOOK: Duration = Duration::from_millis(5);

/// The counts of one download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct DownloadCounts {
    /// The number of requests.
    pub requests: u64,
    /// The number of requests with a Range field; 0 if the log does not contain it.
    #[serde(default)]
    pub ranged: u64,
    /// Bytes of answers, including heads if the server counts them; `None` if it does not count bytes.
    pub bytes: Option<u64>,
    /// The number of open connections.
    #[serde(default)]
    pub connected: u32,
}

/// Reads the counts of the scripted server at `at` for `KIND/DOWNLOAD`, once its connections have ended.
///
/// # Errors
/// When the server does not answer.
pub fn read_counts(at: &str, download: &str) -> anyhow::Result<DownloadCounts> {
    let since = Instant::now();
    loop {
        let counts = ask(at, download)?;
        if counts.connected == 0 || since.elapsed() > SETTLES {
            return Ok(counts);
        }
        thread::sleep(LOOK);
    }
}

fn ask(at: &str, download: &str) -> anyhow::Result<DownloadCounts> {
    let authority = at
        .strip_prefix("http://")
        .context("the address of the scripted server must begin with http://")?;
    let mut stream = TcpStream::connect(authority)
        .with_context(|| format!("cannot connect to the scripted server at {authority}"))?;
    let head = format!("GET /counts/{download} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body =
        answer.split("\r\n\r\n").nth(1).context("the scripted server did not report its counts")?;
    serde_json::from_str(body)
        .with_context(|| format!("cannot parse the scripted server's counts: {body}"))
}

/// An access log with a line for each request. A line's last word is the number of bytes, if it is a number.
pub struct AccessLog<'a> {
    file: &'a Path,
    seen: usize,
}

impl<'a> AccessLog<'a> {
    /// Counts the lines that are added from now on.
    pub fn new(file: &'a Path) -> Self {
        Self { file, seen: Self::read(file).lines().count() }
    }

    fn read(file: &Path) -> String {
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    /// The counts since then, once there is a line.
    pub fn counts(&self) -> DownloadCounts {
        let since = Instant::now();
        loop {
            let text = Self::read(self.file);
            let counts = added(text.lines().skip(self.seen));
            if counts.requests > 0 || since.elapsed() > SETTLES {
                return counts;
            }
            thread::sleep(LOOK);
        }
    }
}

fn added<'a>(lines: impl Iterator<Item = &'a str>) -> DownloadCounts {
    let mut counts = DownloadCounts::default();
    for line in lines {
        counts.requests += 1;
        let bytes = line.split_whitespace().next_back().and_then(|word| word.parse::<u64>().ok());
        counts.bytes = bytes.map(|bytes| counts.bytes.unwrap_or_default() + bytes).or(counts.bytes);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_log_is_a_request() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        fs::write(&file, "200 17\n").unwrap();
        let log = AccessLog::new(&file);
        fs::write(&file, "200 17\n206 100\n\"GET / HTTP/1.1\" 200 -\n206 50\n").unwrap();
        assert_eq!(
            log.counts(),
            DownloadCounts { requests: 3, bytes: Some(150), ..DownloadCounts::default() }
        );
    }
}
