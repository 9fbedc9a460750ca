//! Progress on standard error: a bar on a terminal, one line per finished step elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The progress of one download.
pub struct Bar(ProgressBar);

impl Bar {
    /// An empty bar; drawn on a terminal alone, without colours.
    pub fn new(name: &str, bytes: u64) -> Self {
        let template =
            "{prefix:>8} {spinner} [{bar:30}] {bytes:>10}/{total_bytes} {bytes_per_sec:>12} {msg}";
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let bar = ProgressBar::new(bytes).with_style(style).with_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Bytes present now.
    pub fn set(&self, bytes: u64) {
        self.0.set_position(bytes);
    }

    /// A remark beside the bar.
    pub fn note(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
