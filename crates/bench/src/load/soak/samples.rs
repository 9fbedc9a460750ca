//! Samples the relay's resources every second.

use super::super::{
    listeners::{Descriptors, ListenerProcesses},
    report::Report,
};
use anyhow::Context as _;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// The interval between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// Descriptors and memory over time.
pub struct Samples {
    before: Descriptors,
    most: Descriptors,
    after: Option<Descriptors>,
    /// Seconds since the end of the warm-up, and bytes of anonymous memory.
    memory: Vec<(f64, f64)>,
}

impl Samples {
    /// Takes a sample before anything happens.
    ///
    /// # Errors
    /// When the relay is gone.
    pub fn begin(relay: &ListenerProcesses) -> anyhow::Result<Self> {
        let before = relay.descriptors()?;
        Ok(Self { before, most: before, after: None, memory: Vec::new() })
    }

    /// Samples until `warmup` and `span` have passed; memory counts after the warm-up.
    ///
    /// # Errors
    /// When the relay is gone.
    pub async fn take(
        &mut self,
        relay: &ListenerProcesses,
        warmup: Duration,
        span: Duration,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while begun.elapsed() < warmup + span {
            ticks.tick().await;
            let now = relay.descriptors()?;
            self.most.all = self.most.all.max(now.all);
            self.most.pipes = self.most.pipes.max(now.pipes);
            self.most.sockets = self.most.sockets.max(now.sockets);
            if let Some(since) = begun.elapsed().checked_sub(warmup) {
                self.memory.push((since.as_secs_f64(), relay.anonymous_bytes()? as f64));
            }
        }
        Ok(())
    }

    /// Waits until the relay has released all connections, for at most `patience`.
    ///
    /// # Errors
    /// When the relay is gone.
    pub async fn settle(
        &mut self,
        relay: &ListenerProcesses,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        loop {
            let now = relay.descriptors().context("after the last connection")?;
            self.after = Some(now);
            if now.sockets <= self.before.sockets || Instant::now() >= until {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reports all values; `connections` is the number of connections from the start.
    pub fn report(&self, report: &mut Report, connections: u64) {
        let after = self.after.unwrap_or_default();
        let left = |d: Descriptors| (d.all - d.pipes) as f64;
        report.add("descriptors_left", "1", left(after) - left(self.before));
        report.add("sockets_left", "1", after.sockets as f64 - self.before.sockets as f64);
        report.add("descriptors_before", "1", self.before.all as f64);
        report.add("descriptors_most", "1", self.most.all as f64);
        report.add("sockets_most", "1", self.most.sockets as f64);
        report.add("pipes_most", "1", self.most.pipes as f64);
        let bytes: Vec<f64> = self.memory.iter().map(|(_, bytes)| *bytes).collect();
        report.add("memory_most", "MB", bytes.iter().copied().fold(0.0, f64::max) / 1e6);
        let span = self.memory.last().map_or(0.0, |(at, _)| *at);
        let growth = slope(&self.memory) * span;
        report.add("memory_growth", "MB", growth / 1e6);
        report.add("memory_growth_per_connection", "B", growth / connections.max(1) as f64);
        report.add("memory_slope", "kB/min", slope(&self.memory) * 60.0 / 1e3);
    }
}

/// The slope of the least-squares line; 0 for fewer than two points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let across: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let along: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    if along > 0.0 { across / along } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::slope;

    #[test]
    fn the_slope_of_a_line_is_found() {
        let line: Vec<_> = (0..10).map(|i| (f64::from(i), 3.0 * f64::from(i) + 7.0)).collect();
        assert!((slope(&line) - 3.0).abs() < 1e-9);
        assert!(slope(&[]).abs() < 1e-9 && slope(&line[..1]).abs() < 1e-9);
    }
}
