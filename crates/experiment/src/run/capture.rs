//! Captures the output of a program on a separate thread, so that the program never blocks on it.

use parking_lot::{Condvar, Mutex};
use std::{
    io::Read,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// The most of an arm's output that is kept, bytes: JSON with the series of a long run has some MB. A longer output is
/// an error.
pub const WHOLE_MAX: usize = 16 << 20;
/// The most of other output that is kept, bytes: enough for error messages. Only the end of a longer output is kept.
pub const TAIL_MAX: usize = 64 << 10;

/// The output of a program so far.
#[derive(Clone, Debug)]
pub struct Capture(Arc<(Mutex<Tail>, Condvar)>);

#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    dropped: bool,
    ended: bool,
}

impl Capture {
    /// Reads `stream` to its end on a separate thread, and keeps its last `max` bytes.
    pub fn start(mut stream: impl Read + Send + 'static, max: usize) -> Self {
        let shared = Arc::new((Mutex::new(Tail::default()), Condvar::new()));
        let capture = Self(Arc::clone(&shared));
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                shared.0.lock().keep(&buffer[..n], max);
            }
            shared.0.lock().ended = true;
            shared.1.notify_all();
        });
        capture
    }

    /// Waits for the end of the output, at most for `patience`: a child that the program left behind may keep it open.
    pub fn wait_end(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut tail = self.0.0.lock();
        while !tail.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.0.1.wait_for(&mut tail, left);
        }
    }

    /// The output that is kept so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().bytes).into_owned()
    }

    /// Whether the output was too long to be kept completely.
    pub fn has_dropped(&self) -> bool {
        self.0.0.lock().dropped
    }

    /// Whether the kept output contains `text`; `false` for an empty text.
    pub fn contains(&self, text: &str) -> bool {
        let tail = self.0.0.lock();
        !text.is_empty() && tail.bytes.windows(text.len()).any(|w| w == text.as_bytes())
    }

    /// The last `n` non-empty lines, for an error message.
    pub fn last_lines(&self, n: usize) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(n)..].join("; ")
    }
}

impl Tail {
    fn keep(&mut self, new: &[u8], max: usize) {
        self.bytes.extend_from_slice(new);
        if self.bytes.len() > max {
            self.bytes.drain(..self.bytes.len() - max);
            self.dropped = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let capture = Capture::start(&b"first line\n\nlast line\n"[..], 12);
        capture.wait_end(Duration::from_secs(10));
        assert_eq!(capture.text(), "\n\nlast line\n");
        assert!(capture.has_dropped() && capture.contains("last"));
        assert!(!capture.contains("first") && !capture.contains(""));
        assert_eq!(capture.last_lines(3), "last line");
    }
}
