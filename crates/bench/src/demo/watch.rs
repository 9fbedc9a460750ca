//! Progress of one download on standard error: a bar if that is a terminal, otherwise nothing but the line that each
//! finished step prints.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// The layout: at most 80 columns, without colours.
const TEMPLATE: &str =
    "{prefix:<17} {spinner} [{wide_bar}] {decimal_bytes:>9} of {decimal_total_bytes} {msg}";

/// The progress of one download.
pub struct DownloadBar {
    bar: ProgressBar,
    remark: String,
}

impl DownloadBar {
    /// Creates an empty bar.
    pub fn new(name: &str, bytes: u64) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let bar = ProgressBar::new(bytes).with_style(style).with_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, remark: String::new() }
    }

    /// Sets the number of bytes present and shows their mean rate since the start.
    pub fn set(&self, bytes: u64) {
        let rate = Rate::over(ByteSize::from_bytes(bytes), self.bar.elapsed());
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{:5.1} Mbit/s{}", rate.as_mbps(), self.remark));
    }

    /// Shows a remark beside the rate from now on.
    pub fn note(&mut self, text: &str) {
        self.remark = format!(", {text}");
    }
}

impl Drop for DownloadBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
