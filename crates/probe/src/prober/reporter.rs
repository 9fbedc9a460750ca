//! Reports to the oracle: what it waits for at once, the rest every half minute.

use super::{
    ProberShared,
    load::{LoadMeter, RelayView},
    report_batch::{Entry, ReportBatch},
};
use std::time::Duration;
use thalweg_base::log::Event;
use thalweg_mesh::{OracleClient, OracleError};
use thalweg_wire::mesh::measure::{Load, MOST_ENTRIES, PassiveReport};
use tokio::time::{Instant, sleep, sleep_until};

/// The time between two regular reports.
const REGULAR: Duration = Duration::from_secs(30);

/// The pause after a failure; doubled each time, up to [`REGULAR`].
const FIRST: Duration = Duration::from_secs(1);

/// Reports the entries of the outbox to the oracle.
pub(super) struct Reporter<'a> {
    pub(super) shared: &'a ProberShared,
    pub(super) client: OracleClient,
    pub(super) relay: Option<RelayView>,
}

impl Reporter<'_> {
    /// Delivers the entries of the outbox for ever.
    pub(super) async fn run(self) {
        let mut meter = self.relay.as_ref().map(LoadMeter::new);
        let (mut next, mut pause) = (Instant::now() + REGULAR, FIRST);
        loop {
            let is_regular = tokio::select! {
                () = self.shared.outbox.wait_for_entry() => false,
                () = sleep_until(next) => true,
            };
            let mut load = None;
            if is_regular {
                next = Instant::now() + REGULAR;
                if let (Some(view), Some(meter)) = (&self.relay, &mut meter) {
                    load = Some(meter.read(view));
                }
                self.collect();
            }
            match self.deliver(load).await {
                Ok(()) => pause = FIRST,
                Err(error) => {
                    if pause == FIRST {
                        self.shared.log.put(Event::new("unreported").with("why", error));
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(REGULAR);
                    self.shared.outbox.wake();
                }
            }
        }
    }

    /// Delivers all waiting entries, part by part. If this fails, those not delivered wait again.
    async fn deliver(&self, load: Option<Load>) -> Result<(), OracleError> {
        let mut load = load.map(|load| (Instant::now(), Entry::Load(load)));
        loop {
            let mut part = self.shared.outbox.take(MOST_ENTRIES - 1);
            part.0.extend(load.take());
            if part.is_empty() {
                return Ok(());
            }
            self.deliver_part(part).await?;
        }
    }

    /// Halves a part that the oracle does not accept, until the entry that it cannot read is alone. That entry is
    /// dropped, and logged.
    async fn deliver_part(&self, part: ReportBatch) -> Result<(), OracleError> {
        let mut parts = vec![part];
        while let Some(part) = parts.pop() {
            let reports = part.reports();
            let why = match part.fits(&reports) {
                false => "the entry is longer than the oracle accepts".to_owned(),
                true => match self.client.report(&reports).await {
                    Ok(reply) => {
                        self.log_refused(&reply.refused);
                        continue;
                    }
                    Err(error) if is_unreadable(&error) => error.to_string(),
                    Err(error) => {
                        parts.push(part);
                        parts.into_iter().for_each(|part| self.shared.outbox.put_back(part));
                        return Err(error);
                    }
                },
            };
            match part.halves() {
                Ok((first, second)) => parts.extend([second, first]),
                Err(alone) => self.log_dropped(&alone, &why),
            }
        }
        Ok(())
    }

    /// Passes on what was observed of legs to members: to the outbox, if it may be reported, and to the overlay, if
    /// there is one.
    fn collect(&self) {
        let own = || self.shared.legs.get().map(|(legs, passive)| (legs, *passive));
        let relays = self.relay.as_ref().map(|view| (view.metrics.legs(), view.passive));
        let Some((legs, passive)) = relays.or_else(own) else { return };
        for seen in legs.take() {
            _ = self.shared.transfers.send(seen.clone());
            if !passive {
                continue;
            }
            self.shared.outbox.add_transfer(PassiveReport {
                id: 0,
                from: self.shared.name.clone(),
                to: seen.to,
                bps: seen.bps,
                at_least: seen.at_least,
                bytes: seen.bytes,
                age: seen.age,
            });
        }
    }

    fn log_dropped(&self, part: &ReportBatch, why: &str) {
        for (_, entry) in &part.0 {
            self.shared.log.put(Event::new("report_dropped").with("entry", entry).with("why", why));
        }
    }

    /// Logs the first reason; the others are most often the same.
    fn log_refused(&self, refused: &[String]) {
        if let Some(first) = refused.first() {
            let event = Event::new("report_refused").with_number("entries", refused.len());
            self.shared.log.put(event.with("why", first));
        }
    }
}

/// Whether the oracle cannot read the report, or not all of it: it would answer the same again.
fn is_unreadable(error: &OracleError) -> bool {
    match error {
        OracleError::Refused(refusal) => {
            ["bad_request", "too_large"].contains(&refusal.code.as_str())
        }
        OracleError::Status(status) => [400, 413].contains(status),
        _ => false,
    }
}
