//! The stop request: Ctrl-C or another termination signal.

use crate::error::{ExperimentError, Result};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A flag that a signal sets and every loop checks.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Creates a flag that SIGINT, SIGTERM and SIGHUP set from now on. A second signal has no effect: `timeout` sends
    /// two, and cleaning up must not be interrupted.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in
            [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            let fault = |e| ExperimentError::Other(format!("cannot handle signal {signal}: {e}"));
            signal_hook::flag::register(signal, Arc::clone(&stop.0)).map_err(fault)?;
        }
        Ok(stop)
    }

    /// Requests a stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if a stop was requested.
    ///
    /// # Errors
    /// [`ExperimentError::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(ExperimentError::Interrupted) } else { Ok(()) }
    }
}
