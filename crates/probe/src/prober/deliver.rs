//! Reports to the oracle: at once what it waits for, the rest every half minute.

use super::{
    Shared,
    load::{LoadMeter, RelayView},
    part::{Entry, Part},
};
use std::time::Duration;
use thalweg_base::log::Event;
use thalweg_mesh::{OracleClient, OracleError};
use thalweg_wire::mesh::measure::{Load, MOST_ENTRIES, Watched};
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
            }
            shared.collect(relay.as_ref());
        }
        match shared.deliver(&client, load).await {
            Ok(()) => pause = FIRST,
            Err(error) => {
                if pause == FIRST {
                    shared.log.put(Event::new("unreported").with("why", error));
                }
                sleep(pause).await;
                pause = (pause * 2).min(REGULAR);
                shared.outbox.wake();
            }
        }
    }
}

/// Whether the oracle cannot read what it was told, or all of it: it would say so again.
fn is_unreadable(error: &OracleError) -> bool {
    match error {
        OracleError::Refused(refusal) => {
            ["bad_request", "too_large"].contains(&refusal.code.as_str())
        }
        OracleError::Status(status) => [400, 413].contains(status),
        _ => false,
    }
}

impl Shared {
    /// All that waits, part by part. What is not delivered when this fails waits again.
    async fn deliver(&self, client: &OracleClient, load: Option<Load>) -> Result<(), OracleError> {
        let mut load = load.map(|load| (Instant::now(), Entry::Load(load)));
        loop {
            let mut part = self.outbox.take(MOST_ENTRIES - 1);
            part.0.extend(load.take());
            if part.is_empty() {
                return Ok(());
            }
            self.deliver_part(client, part).await?;
        }
    }

    /// Halves what the oracle does not take, until the entry that it cannot read is alone: that
    /// one is dropped, and told of.
    async fn deliver_part(&self, client: &OracleClient, part: Part) -> Result<(), OracleError> {
        let mut parts = vec![part];
        while let Some(part) = parts.pop() {
            let reports = part.reports();
            let why = match part.fits(&reports) {
                false => "longer than an oracle takes".to_owned(),
                true => match client.report(&reports).await {
                    Ok(reply) => {
                        self.tell_refused(&reply.refused);
                        continue;
                    }
                    Err(error) if is_unreadable(&error) => error.to_string(),
                    Err(error) => {
                        parts.push(part);
                        parts.into_iter().for_each(|part| self.outbox.put_back(part));
                        return Err(error);
                    }
                },
            };
            match part.halves() {
                Ok((first, second)) => parts.extend([second, first]),
                Err(alone) => self.tell_dropped(&alone, &why),
            }
        }
        Ok(())
    }

    /// What was seen of legs to members goes into the outbox, if it may, and to the overlay, if there is one.
    fn collect(&self, view: Option<&RelayView>) {
        let own = || self.legs.get().map(|(legs, passive)| (legs, *passive));
        let relays = view.map(|view| (view.metrics.legs(), view.passive));
        let Some((legs, passive)) = relays.or_else(own) else { return };
        for seen in legs.take() {
            _ = self.transfers.send(seen.clone());
            if !passive {
                continue;
            }
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

    fn tell_dropped(&self, part: &Part, why: &str) {
        for (_, entry) in &part.0 {
            self.log.put(Event::new("report_dropped").with("entry", entry).with("why", why));
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
