//! Reports to the oracle: at once what it waits for, the rest every half minute.

use super::{
    Shared,
    load::{LoadMeter, RelayView},
};
use crate::{
    mesh::{OracleClient, OracleError},
    relay::Event,
};
use std::time::Duration;
use thalweg_wire::mesh::measure::{Reports, Watched};
use tokio::time::{Instant, sleep, sleep_until};

/// Between two regular reports.
const REGULAR: Duration = Duration::from_secs(30);

/// After a failure; twice as much each time, [`REGULAR`] at most.
const FIRST: Duration = Duration::from_secs(1);

/// For ever: delivers what is in the outbox.
pub(super) async fn run(shared: &Shared, client: OracleClient, relay: Option<RelayView>) {
    let mut meter = relay.as_ref().map(LoadMeter::new);
    let (mut next, mut pause) = (Instant::now() + REGULAR, FIRST);
    loop {
        let is_regular = tokio::select! {
            () = shared.outbox.news() => false,
            () = sleep_until(next) => true,
        };
        let mut load = None;
        if is_regular {
            next = Instant::now() + REGULAR;
            if let (Some(view), Some(meter)) = (&relay, &mut meter) {
                load = Some(meter.read(view));
                shared.collect(view);
            }
        }
        let waiting = shared.outbox.take();
        if waiting.is_empty() && load.is_none() {
            continue;
        }
        let reports = Reports { load, ..waiting.reports() };
        match client.report(&reports).await {
            Ok(reply) => {
                pause = FIRST;
                shared.tell_refused(&reply.refused);
            }
            Err(error) if is_final(&error) => shared.tell_refused(&[error.to_string()]),
            Err(error) => {
                if pause == FIRST {
                    shared.log.put(Event::new("unreported").with("why", error));
                }
                shared.outbox.put_back(waiting);
                sleep(pause).await;
                pause = (pause * 2).min(REGULAR);
                shared.outbox.wake();
            }
        }
    }
}

/// Whether the same report would be refused again.
fn is_final(error: &OracleError) -> bool {
    match error {
        OracleError::Refused(refusal) => {
            ["bad_request", "too_large", "not_found", "method"].contains(&refusal.code.as_str())
        }
        OracleError::Status(status) => (400..500).contains(status),
        _ => false,
    }
}

impl Shared {
    /// What the relay has seen of legs to members goes into the outbox.
    fn collect(&self, view: &RelayView) {
        if !view.passive {
            return;
        }
        for seen in view.metrics.legs().take() {
            self.outbox.watched(Watched {
                id: 0,
                from: self.name.clone(),
                to: seen.to,
                bps: seen.bps,
                at_least: seen.at_least,
                bytes: seen.bytes,
                age: seen.age,
            });
        }
    }

    /// The first reason: the others are most often the same.
    fn tell_refused(&self, refused: &[String]) {
        if let Some(first) = refused.first() {
            let event = Event::new("report_refused").with_number("entries", refused.len());
            self.log.put(event.with("why", first));
        }
    }
}
