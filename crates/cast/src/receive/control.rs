//! A receiver's end of its control channel to the source.

use super::reception::{Parents, Reception, State, encode_parents};
use crate::{
    disk::{count_ignored_owners, refused_links},
    leg::{Leg, LegReader, LegWriter},
};
use std::{io, sync::Arc, time::Duration};
use thalweg_wire::{
    Manifest, Signable as _,
    cast::{
        Account, Layout, MAX_CANDIDATES, MAX_SOURCE_MESSAGE, MAX_WAY, ReceiverOutcome, Refusal,
        Report, SourceMessage,
    },
};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, interval_at, timeout},
};

/// Timeout for a silent source. It may connect again.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum interval between progress reports.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Capacity of the report queue to a slow source: one report a second, and one for each parent that is left. If it is
/// full, the newest report is dropped. Progress is reported again; a parent that was left is not.
const MAX_REPORTS: usize = 64;

/// Why the conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlEnd {
    /// The source disconnected.
    Gone,
    /// The source abandoned the cast.
    Forget,
}

/// Waits until the received data is removed, with keep-alive reports. The source learns of a failure by a report, and
/// of success by the end of the channel.
///
/// # Errors
/// I/O errors of the connection.
pub async fn forget(
    writer: &mut LegWriter,
    forgetting: impl Future<Output = Result<(), Refusal>>,
) -> io::Result<()> {
    let mut ticks = interval_at(Instant::now() + SIGN_OF_LIFE, SIGN_OF_LIFE);
    tokio::pin!(forgetting);
    let forgotten = loop {
        tokio::select! {
            forgotten = &mut forgetting => break forgotten,
            _ = ticks.tick() => writer.write_message(&Report::Account(Account::default())).await?,
        }
    };
    match forgotten {
        Ok(()) => Ok(()),
        Err(why) => {
            writer
                .write_message(
                    &Report::Ended(ReceiverOutcome::Failed(why), Account::default()).cut(),
                )
                .await?;
            writer.close().await;
            Ok(())
        }
    }
}

/// Talks with the source until it disconnects. `describe` is called after each message once manifest and layout are
/// known.
///
/// # Errors
/// I/O errors of the connection, or a source that violates the protocol.
pub async fn talk(
    reception: &Arc<Reception>,
    leg: &mut Leg,
    describe: impl Fn(),
) -> io::Result<ControlEnd> {
    let Leg { reader, writer, .. } = leg;
    let (reports, outgoing) = mpsc::channel(MAX_REPORTS);
    let lacks = reception.described().is_none();
    let needs = Report::Needs { manifest: lacks, layout: lacks };
    writer.write_message(&needs).await?;
    reception.attach(reports);
    tokio::select! {
        parted = listen(reception, reader, &describe) => parted,
        failed = report(reception, writer, outgoing) => failed.map(|()| ControlEnd::Gone),
    }
}

/// Sends reports as they arise, and the final report whenever the reception has ended.
async fn report(
    reception: &Reception,
    writer: &mut LegWriter,
    mut reports: mpsc::Receiver<Report>,
) -> io::Result<()> {
    let mut states = reception.states();
    let mut ticks = interval_at(Instant::now() + SIGN_OF_LIFE, SIGN_OF_LIFE);
    loop {
        let ended = matches!(*states.borrow_and_update(), State::Complete(..) | State::Failed(_));
        if let Some(end) = reception.outcome().filter(|_| ended) {
            // Earlier reports go first, because the source reads nothing after the final one.
            while let Ok(report) = reports.try_recv() {
                writer.write_message(&report).await?;
            }
            let is_complete = matches!(end, ReceiverOutcome::Complete { .. });
            let (owners, links) = if is_complete { left_out(reception).await? } else { (0, None) };
            let (before, behind) = last_words(end, reception.account(true), owners, links);
            for report in before {
                writer.write_message(&report.cut()).await?;
            }
            // The source may have closed the connection.
            _ = writer.write_message(&behind.cut()).await;
        }
        tokio::select! {
            changed = states.changed() => changed.map_err(io::Error::other)?,
            report = reports.recv() => match report {
                Some(report) => writer.write_message(&report).await?,
                // The source has opened a new control channel.
                None => return Ok(()),
            },
            // Keep-alive: during the final check there are no other reports.
            _ = ticks.tick() => writer.write_message(&Report::Account(reception.account(false)).cut()).await?,
        }
    }
}

/// The number of entries whose requested owner could not be set, and the links that are left out.
async fn left_out(reception: &Reception) -> io::Result<(u64, Option<(u64, String)>)> {
    let Some((_, layout)) = reception.described().clone() else { return Ok((0, None)) };
    let (home, name) = (reception.home.clone(), reception.offer().into_value().name);
    let find = move || {
        let owners = count_ignored_owners(&layout, home.policy.owners);
        (owners, refused_links(name.as_bytes(), &layout, &home.policy))
    };
    spawn_blocking(find).await.map_err(io::Error::other)
}

/// The reports before and after `Ended`. Sources of earlier versions cannot decode `LinksRefused` and close at `Ended`;
/// later ones wait for one more report if the object has links that lead upwards.
fn last_words(
    end: ReceiverOutcome,
    account: Account,
    owners: u64,
    links: Option<(u64, String)>,
) -> (Vec<Report>, Report) {
    let owners = (owners > 0).then_some(Report::OwnersIgnored(owners));
    let behind = match links {
        Some((count, first)) => Report::LinksRefused { count, first },
        None => Report::Account(account.clone()),
    };
    (owners.into_iter().chain([Report::Ended(end, account)]).collect(), behind)
}

async fn listen(
    reception: &Arc<Reception>,
    reader: &mut LegReader,
    describe: &impl Fn(),
) -> io::Result<ControlEnd> {
    let (mut manifest, mut layout) = (None, None);
    loop {
        let heard =
            timeout(SOURCE_TIMEOUT, reader.read_message::<SourceMessage>(MAX_SOURCE_MESSAGE)).await;
        let message = heard.map_err(|_| {
            io::Error::other(format!("no message from the source for {SOURCE_TIMEOUT:?}"))
        })?;
        let message = match message {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(ControlEnd::Gone),
            message => message?,
        };
        reception.record_heard();
        let offer = reception.offer().into_value();
        match message {
            SourceMessage::Manifest => {
                let bytes = slowly(reader.read_bytes(offer.manifest_bytes() as usize)).await?;
                let read = Manifest::decode(&bytes).map_err(invalid)?;
                if read.object() != offer.object || read.length() != offer.length {
                    return Err(invalid("the manifest does not match the offered object"));
                }
                manifest = Some(read);
            }
            SourceMessage::Layout => {
                let bytes = slowly(reader.read_bytes(offer.layout_bytes as usize)).await?;
                if *blake3::hash(&bytes).as_bytes() != offer.layout {
                    return Err(invalid("the layout does not match the offer"));
                }
                layout = Some(Layout::decode(&bytes, offer.length).map_err(invalid)?);
            }
            SourceMessage::Parents { candidates, at_once }
                if candidates.len() <= MAX_CANDIDATES =>
            {
                let at_once = (at_once as usize).clamp(1, MAX_CANDIDATES);
                keep_parents(reception, Parents { candidates, at_once }).await?;
            }
            SourceMessage::Parents { .. } => {
                return Err(invalid("the source listed too many parents"));
            }
            SourceMessage::Expectation(expected) if expected.way.len() <= MAX_WAY => {
                let (home, record) = (reception.home.clone(), reception.expect(expected));
                let keep = move || home.keep_record(&record);
                spawn_blocking(keep).await.map_err(io::Error::other)??;
            }
            SourceMessage::Expectation(_) => {
                return Err(invalid("the path from the source has too many hops"));
            }
            SourceMessage::Ring(terms) if terms.are_sound() => reception.set_ring(terms),
            SourceMessage::Ring(_) => {
                return Err(invalid("the source requested a ring buffer that is too large"));
            }
            SourceMessage::Forget => return Ok(ControlEnd::Forget),
            SourceMessage::KeepAlive => {}
        }
        match (manifest.take(), layout.take()) {
            (Some(read), Some(tree)) => keep_described(reception, read, tree).await?,
            other => (manifest, layout) = other,
        }
        if reception.described().is_some() {
            describe();
        }
    }
}

async fn keep_parents(reception: &Arc<Reception>, parents: Parents) -> io::Result<()> {
    let (home, encoded) = (reception.home.clone(), encode_parents(&parents));
    reception.set_parents(parents);
    spawn_blocking(move || home.keep_parents(&encoded)).await.map_err(io::Error::other)?
}

async fn keep_described(
    reception: &Arc<Reception>,
    manifest: Manifest,
    layout: Layout,
) -> io::Result<()> {
    let keeping = Arc::clone(reception);
    let keep = move || {
        keeping.home.describe(&manifest, &layout)?;
        *keeping.described() = Some((Arc::new(manifest), Arc::new(layout)));
        Ok(())
    };
    spawn_blocking(keep).await.map_err(io::Error::other)?
}

/// Limits the time for receiving the manifest or layout, which may be long: 20 min for the longest, at 128 kB/s.
///
/// # Errors
/// The error of `step`, or a timeout.
pub async fn slowly<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    thalweg_base::timeout::within(
        Duration::from_secs(1200),
        "complete description of the object",
        step,
    )
    .await
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_unknown_to_earlier_sources_follow_the_end() {
        let end = || ReceiverOutcome::Complete { micros: 1 };
        let links = Some((1, "a".to_owned()));
        let (before, behind) = last_words(end(), Account::default(), 2, links);
        assert!(matches!(before[..], [Report::OwnersIgnored(2), Report::Ended(..)]), "{before:?}");
        assert!(matches!(behind, Report::LinksRefused { count: 1, .. }));
        let (before, behind) = last_words(end(), Account::default(), 0, None);
        assert!(matches!(before[..], [Report::Ended(..)]), "{before:?}");
        assert!(matches!(behind, Report::Account(_)), "nobody waits in vain");
    }
}
