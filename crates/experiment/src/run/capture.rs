//! What a program prints, read beside it so that it never blocks on us.

use std::{
    io::Read,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

/// The most of an arm's output that is kept: JSON with series of a long run is some MB. A longer
/// output is an error.
pub const WHOLE_MAX: usize = 16 << 20;
/// The most of anything else: what an error message can show. Of a longer one only the end is kept.
pub const TAIL_MAX: usize = 64 << 10;

/// The output of a program, growing.
#[derive(Clone, Debug)]
pub struct Capture(Arc<(Mutex<Kept>, Condvar)>);

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: bool,
    ended: bool,
}

impl Capture {
    /// Reads `stream` to its end on a thread of its own, keeping its last `max` bytes.
    pub fn of(mut stream: impl Read + Send + 'static, max: usize) -> Self {
        let shared = Arc::new((Mutex::new(Kept::default()), Condvar::new()));
        let capture = Self(Arc::clone(&shared));
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                lock(&shared.0).keep(&buffer[..n], max);
            }
            lock(&shared.0).ended = true;
            shared.1.notify_all();
        });
        capture
    }

    /// Waits for the end of the output, no longer than `patience`: a program
    /// that left a child behind may keep it open.
    pub fn wait_end(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut kept = lock(&self.0.0);
        while !kept.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            kept = match self.0.1.wait_timeout(kept, left) {
                Ok((kept, _)) => kept,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// What is kept so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.0.0).bytes).into_owned()
    }

    /// Whether a part was too long to be kept.
    pub fn dropped(&self) -> bool {
        lock(&self.0.0).dropped
    }

    /// Whether `text` has been printed.
    pub fn contains(&self, text: &str) -> bool {
        let kept = lock(&self.0.0);
        !text.is_empty() && kept.bytes.windows(text.len()).any(|w| w == text.as_bytes())
    }

    /// The last lines, for an error message.
    pub fn last_lines(&self, n: usize) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(n)..].join("; ")
    }
}

impl Kept {
    fn keep(&mut self, new: &[u8], max: usize) {
        self.bytes.extend_from_slice(new);
        if self.bytes.len() > max {
            self.bytes.drain(..self.bytes.len() - max);
            self.dropped = true;
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let capture = Capture::of(&b"first line\n\nlast line\n"[..], 12);
        capture.wait_end(Duration::from_secs(10));
        assert_eq!(capture.text(), "\n\nlast line\n");
        assert!(capture.dropped() && capture.contains("last"));
        assert!(!capture.contains("first") && !capture.contains(""));
        assert_eq!(capture.last_lines(3), "last line");
    }
}
