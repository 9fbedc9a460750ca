//! Ctrl-C and SIGTERM: the first one ends a command in order, the second one at once.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask this process to end; from [`Signals::watch`] on they no longer end it.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes both signals over; must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the system does not let one of them be watched.
    pub fn watch() -> anyhow::Result<Self> {
        let watch = |kind, name| signal(kind).with_context(|| format!("cannot handle {name}"));
        Ok(Self {
            interrupt: watch(SignalKind::interrupt(), "SIGINT")?,
            terminate: watch(SignalKind::terminate(), "SIGTERM")?,
        })
    }

    /// Waits for the next of either. Cancel-safe; signals in quick succession may count as one.
    pub async fn next(&mut self) {
        tokio::select! { _ = self.interrupt.recv() => {}, _ = self.terminate.recv() => {} }
    }
}
