//! What servers counted of a download.

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

/// A client's last connection is seen to end, and its line to be in a log, within this time; else what is known then counts.
const SETTLES: Duration = Duration::from_secs(2);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);

/// Of one download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Those with a Range field; 0 where a log does not say so.
    #[serde(default)]
    pub ranged: u64,
    /// Bytes of answers, heads included where the server counts them; `None` where it counts none.
    pub bytes: Option<u64>,
    /// Connections that have not ended yet.
    #[serde(default)]
    pub connected: u32,
}

/// Of the scripted server at `at`, for `KIND/DOWNLOAD`, once its connections have ended.
///
/// # Errors
/// When it does not answer.
pub fn of(at: &str, download: &str) -> anyhow::Result<Counts> {
    let since = Instant::now();
    loop {
        let counts = ask(at, download)?;
        if counts.connected == 0 || since.elapsed() > SETTLES {
            return Ok(counts);
        }
        thread::sleep(LOOK);
    }
}

fn ask(at: &str, download: &str) -> anyhow::Result<Counts> {
    let authority =
        at.strip_prefix("http://").context("an http:// address of the scripted server")?;
    let mut stream = TcpStream::connect(authority)
        .with_context(|| format!("the scripted server at {authority} is not reached"))?;
    let head = format!("GET /counts/{download} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split("\r\n\r\n").nth(1).context("the scripted server does not count")?;
    serde_json::from_str(body).with_context(|| format!("no counts: {body}"))
}

/// An access log: a line for each request. Its last word is the number of bytes, if it is a number.
pub struct Log<'a> {
    file: &'a Path,
    seen: usize,
}

impl<'a> Log<'a> {
    /// Counts from here on.
    pub fn new(file: &'a Path) -> Self {
        Self { file, seen: Self::read(file).lines().count() }
    }

    fn read(file: &Path) -> String {
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    /// What came since, once there is a line.
    pub fn counts(&self) -> Counts {
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

fn added<'a>(lines: impl Iterator<Item = &'a str>) -> Counts {
    let mut counts = Counts::default();
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
    fn lines_of_a_log_are_requests() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        fs::write(&file, "200 17\n").unwrap();
        let log = Log::new(&file);
        fs::write(&file, "200 17\n206 100\n\"GET / HTTP/1.1\" 200 -\n206 50\n").unwrap();
        assert_eq!(log.counts(), Counts { requests: 3, bytes: Some(150), ..Counts::default() });
    }
}
