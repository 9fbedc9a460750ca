//! Prints on standard error that a figure is still being computed.

use indicatif::ProgressBar;
use std::{
    io::{self, IsTerminal as _},
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_console::note;

/// The time before the first message.
const FIRST: Duration = Duration::from_secs(2);
/// The time between two lines if there is no terminal, so that a log stays short.
const EACH: Duration = Duration::from_secs(10);

/// Shows messages until it is dropped.
pub struct Waiting {
    /// Dropped first, which ends the thread.
    done: Option<SyncSender<()>>,
    speaker: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Starts the thread; nothing is shown in the first two seconds.
    pub fn begin(what: String) -> Self {
        // Nothing is ever sent; the thread ends when the sender is dropped.
        let (done, ended) = sync_channel::<()>(0);
        let speak = move || {
            let began = Instant::now();
            let is_over = |after| ended.recv_timeout(after) != Err(RecvTimeoutError::Timeout);
            if is_over(FIRST) {
                return;
            }
            if io::stderr().is_terminal() {
                let bar = ProgressBar::new_spinner().with_message(what).with_elapsed(FIRST);
                bar.set_style(style());
                bar.enable_steady_tick(Duration::from_millis(100));
                _ = ended.recv();
                return bar.finish_and_clear();
            }
            loop {
                note!("thalweg-bench sim: {what}: computing for {} s", began.elapsed().as_secs());
                if is_over(EACH) {
                    return;
                }
            }
        };
        Self { done: Some(done), speaker: Some(thread::spawn(speak)) }
    }
}

/// At most 80 columns, without colours.
fn style() -> indicatif::ProgressStyle {
    indicatif::ProgressStyle::with_template("{spinner} {msg}: computing for {elapsed}")
        .unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner())
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.done.take());
        // A panic of the thread does not affect the figure.
        _ = self.speaker.take().map(JoinHandle::join);
    }
}
