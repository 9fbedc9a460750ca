//! Ctrl-C: noticed between two steps, so that everything is still cleared away.

use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The user asked to stop.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted; the network and the scratch directory are removed")
    }
}

impl std::error::Error for Interrupted {}

/// Knows whether SIGINT, SIGTERM or SIGHUP has come.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on these signals are noted instead of ending the process.
    ///
    /// # Errors
    /// When a signal handler cannot be installed.
    pub fn watch() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot watch for Ctrl-C")?;
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [mut int, mut term, mut hup] = {
            let _inside = runtime.enter();
            let [int, term, hup] = kinds.map(signal);
            [int?, term?, hup?]
        };
        let flag = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&flag);
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = int.recv() => {},
                    _ = term.recv() => {},
                    _ = hup.recv() => {},
                }
            });
            seen.store(true, Ordering::Relaxed);
        });
        Ok(Self(flag))
    }

    /// # Errors
    /// [`Interrupted`], once a signal has come.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}
