//! The rates that background traffic attained over time.

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use std::{fs, path::Path};

/// The record of the background's receiver.
#[derive(Debug)]
pub struct Background {
    /// For each flow whether it is an on–off stream; otherwise it is a download.
    streams: Vec<bool>,
    lines: Vec<RecordLine>,
}

#[derive(Debug, Deserialize)]
struct RecordHead {
    streams: Vec<bool>,
}

/// Bytes of each flow since the line before.
#[derive(Debug, Deserialize)]
struct RecordLine {
    /// Seconds since 1970.
    at: f64,
    bytes: Vec<u64>,
}

/// The total rates of downloads and of streams, Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackgroundRates {
    /// The sum of infinite TCP flows.
    pub downloads: f64,
    /// The sum of on–off UDP streams.
    pub streams: f64,
}

impl Background {
    /// Reads the record; its last line may be incomplete.
    ///
    /// # Errors
    /// When it cannot be read or has no head.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| {
            format!("{} is not a valid record of background traffic", file.display())
        })
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        let head: RecordHead = serde_json::from_str(lines.next().context("the file is empty")?)?;
        let lines = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { streams: head.streams, lines })
    }

    /// Mean rates between two times, s since 1970, from the lines that lie wholly between them. NaN if there are no
    /// flows of a kind.
    ///
    /// # Errors
    /// When no line lies between them, because the receiver has ended.
    pub fn rates(&self, from: f64, to: f64) -> anyhow::Result<BackgroundRates> {
        let (mut seconds, mut sums) = (0.0, [0_u64; 2]);
        for pair in self.lines.windows(2) {
            let [before, line] = pair else { continue };
            if before.at < from || line.at > to {
                continue;
            }
            seconds += line.at - before.at;
            for (bytes, stream) in line.bytes.iter().zip(&self.streams) {
                sums[usize::from(*stream)] += bytes;
            }
        }
        ensure!(
            seconds > 0.0,
            "the record of background traffic has no complete line in this time"
        );
        // Without flows of a kind there is no rate of them.
        let rate = |stream: bool| match self.streams.contains(&stream) {
            true => sums[usize::from(stream)] as f64 * 8e-6 / seconds,
            false => f64::NAN,
        };
        let (downloads, streams) = (rate(false), rate(true));
        Ok(BackgroundRates { downloads, streams })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_within_the_time_count() {
        let text = "{\"streams\":[false,true]}\n{\"at\":10.0,\"bytes\":[9,9]}\n\
                    {\"at\":11.0,\"bytes\":[250000,125000]}\n{\"at\":12.0,\"bytes\":[500000,125000]}\n\
                    {\"at\":13.0,\"bytes\":[9,9]}\n{\"at\":14.";
        let background = Background::parse(text).unwrap();
        let rates = background.rates(10.0, 12.5).unwrap();
        assert_eq!(rates, BackgroundRates { downloads: 3.0, streams: 1.0 });
        assert!(background.rates(20.0, 30.0).is_err());
    }
}
