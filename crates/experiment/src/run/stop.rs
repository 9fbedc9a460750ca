//! The wish to stop: Ctrl-C, or a termination request.

use crate::error::{ExperimentError, Result};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Set once by a signal, looked at by every loop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that SIGINT, SIGTERM and SIGHUP set from now on. A second signal changes
    /// nothing: `timeout` sends two, and clearing away must not be cut short.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in
            [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            let fault = |e| ExperimentError::Other(format!("no handler for signal {signal}: {e}"));
            signal_hook::flag::register(signal, Arc::clone(&stop.0)).map_err(fault)?;
        }
        Ok(stop)
    }

    /// Makes the wish.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An error if the wish was made.
    ///
    /// # Errors
    /// [`ExperimentError::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(ExperimentError::Interrupted) } else { Ok(()) }
    }
}
