//! `--within`: transfers over bonds finish within a time at the least cost. `--ride`: transfers use the carrier instead
//! of bonds.

use super::uplinks;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_gather::{Event, EventSink};
use thalweg_uplinks::interfaces::{Direction, Uplinks};

/// How first legs go: the options of all who have bonds.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct BondOptions {
    /// Finish within this time at the least cost: interfaces with a price (`[interfaces]` in the
    /// settings) are used as late and as little as possible
    #[arg(long, value_name = "TIME", value_parser = super::get::duration::seconds)]
    pub within: Option<Duration>,

    /// Send the first leg of every path through the carrier, so that it rides in probe trains; the
    /// member or the relays need a carrier too: docs/carrier.md
    #[arg(long, conflicts_with = "within")]
    pub ride: bool,

    /// Yield to other traffic on the connections of this host: take only what it leaves over
    #[arg(long)]
    pub background: bool,
}

impl BondOptions {
    /// Starts the deadline now. The returned sink watches the progress. Call it once the bonds are open, because they
    /// open the interfaces. Without settings for interfaces, none has a price, and nothing is watched.
    pub fn begin(self, flow: Direction, events: Arc<dyn EventSink>) -> Arc<dyn EventSink> {
        let (Some(within), Some(uplinks)) = (self.within, uplinks::process_uplinks()) else {
            return events;
        };
        uplinks.set_deadline(within, flow);
        Arc::new(DeadlineSink { uplinks, events })
    }

    /// Whether first legs use the carrier only.
    pub fn rides(self) -> bool {
        self.ride
    }
}

/// A message about a transfer that took longer than `within` since `began`.
pub fn deadline_overrun(within: Option<Duration>, began: Instant) -> Option<String> {
    let (within, took) = (within?, began.elapsed());
    let late = took.checked_sub(within).filter(|late| !late.is_zero())?;
    let (late, took) = (late.as_secs_f64(), took.as_secs_f64());
    Some(format!("finished after {took:.1} s, {late:.1} s later than --within"))
}

/// Reports the progress to the interfaces, and passes events on.
#[derive(Debug)]
struct DeadlineSink {
    uplinks: Uplinks,
    events: Arc<dyn EventSink>,
}

impl EventSink for DeadlineSink {
    fn event(&self, event: Event) {
        match &event {
            Event::Started { bytes, .. } => self.uplinks.record_progress(0, *bytes),
            Event::Progress(now) => {
                let missing = now.total_bytes.saturating_sub(now.done_bytes);
                self.uplinks.record_progress(now.done_bytes, missing);
            }
            _ => {}
        }
        self.events.event(event);
    }
}
