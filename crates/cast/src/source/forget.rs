//! Abandons a cast: tells receivers to remove the data that they received.

use super::job::{self, CastEnd, CastRecord, JobError, ListedCast, LockedRecord};
use crate::leg;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    time::{Duration, SystemTime},
};
use thalweg_mesh::member_dialer::DialMemberError;
use thalweg_mesh::{RouteNameError, member_dialer::MemberDialer};
use thalweg_net::{PrivateKey, channel::Protocol};
use thalweg_units::WallTime;
use thalweg_wire::{
    Signed,
    cast::{
        CastId, MAX_REPORT, Offer, Opening, Pass, ReceiverOutcome, Refusal, Report, SourceMessage,
    },
    mesh::Name,
};
use thiserror::Error;
use tokio::{task::JoinSet, time::timeout};

/// The validity of the offer and passes that carry the message, which is sent at once.
const OFFER_LIFETIME: Duration = Duration::from_secs(600);

/// Timeout for a receiver's reports. While it removes data it reports more often.
const REPORT_TIMEOUT: Duration = Duration::from_secs(20);

/// The minimum number of digits that identify a cast.
const MIN_DIGITS: usize = 4;

/// Why a cast was not abandoned.
#[derive(Debug, Error)]
pub enum ForgetError {
    #[error(
        "no cast from this host has the name or number `{0}`; `thalweg cast status` lists casts"
    )]
    Unknown(String),
    #[error("several casts match `{0}`; give the number of one: {1}")]
    Ambiguous(String, String),
    /// The record cannot be read or written.
    #[error("{0}")]
    Job(#[from] JobError),
    /// A process is working on the cast.
    #[error("the cast is running; stop its `thalweg cast` command first")]
    Running,
    /// The record is damaged.
    #[error("the record of this cast is damaged")]
    Damaged,
}

/// Whether one receiver was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceiverNotice {
    pub receiver: Name,
    /// Why it was not told; absent: it was told, or has no data of the cast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// It is no longer a member with an address, so trying again is useless.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
}

/// The result of abandoning a cast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForgetReport {
    /// The cast's ID.
    pub cast: String,
    /// Its name in the inboxes.
    pub name: String,
    /// Receivers that have the object; they keep it.
    pub complete: Vec<Name>,
    /// The notices to the other receivers.
    #[serde(rename = "told")]
    pub notices: Vec<ReceiverNotice>,
}

/// Abandons a cast of this host, given by its name or the first digits of its ID. Receivers that cannot be reached are
/// not told. The same call tries them again, and they remove the data a week after the offer has expired.
///
/// # Errors
/// [`ForgetError`].
pub async fn forget(
    directory: &Path,
    what: &str,
    dialer: &MemberDialer,
    key: &PrivateKey,
) -> Result<ForgetReport, ForgetError> {
    let found = find(job::list(directory), what)?;
    let mut held: Vec<LockedRecord> = Vec::new();
    for one in &found {
        held.push(LockedRecord::take(one).map_err(|why| match why {
            JobError::Running => ForgetError::Running,
            other => other.into(),
        })?);
    }
    let record = held.first().map(|held| held.record.clone()).ok_or(ForgetError::Damaged)?;
    let offer = record.offer().ok_or(ForgetError::Damaged)?.into_value();
    for held in &mut held {
        held.record.end = Some(CastEnd::GivenUp);
        held.keep()?;
    }
    let (complete, rest) = receivers(&held);
    let notices = notify_all(rest, offer, dialer, key).await;
    Ok(ForgetReport { cast: record.cast, name: record.name, complete, notices })
}

/// The receivers of all jobs that have the object, and those that do not.
fn receivers(held: &[LockedRecord]) -> (Vec<Name>, Vec<Name>) {
    let mut all: BTreeMap<&Name, bool> = BTreeMap::new();
    for (name, receiver) in held.iter().flat_map(|held| &held.record.receivers) {
        *all.entry(name).or_default() |= receiver.is_complete;
    }
    let of = |complete: bool| {
        let its = all.iter().filter(move |(_, is_complete)| **is_complete == complete);
        its.map(|(name, _)| (*name).clone()).collect()
    };
    (of(true), of(false))
}

/// The jobs of one cast: there is one for each set of receivers.
fn find(all: Vec<ListedCast>, what: &str) -> Result<Vec<ListedCast>, ForgetError> {
    let is_it = |record: &CastRecord| {
        record.name == what || (what.len() >= MIN_DIGITS && record.cast.starts_with(what))
    };
    let found: Vec<ListedCast> = all.into_iter().filter(|found| is_it(&found.record)).collect();
    let mut casts: Vec<&str> = found.iter().map(|found| found.record.cast.as_str()).collect();
    casts.sort_unstable();
    casts.dedup();
    match casts[..] {
        [] => Err(ForgetError::Unknown(what.to_owned())),
        [_] => Ok(found),
        _ => Err(ForgetError::Ambiguous(what.to_owned(), casts.join(" or "))),
    }
}

async fn notify_all(
    receivers: Vec<Name>,
    mut offer: Offer,
    dialer: &MemberDialer,
    key: &PrivateKey,
) -> Vec<ReceiverNotice> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    offer.created = WallTime::from_unix_nanos(at(now));
    offer.expiry = WallTime::from_unix_nanos(at(now + OFFER_LIFETIME));
    let expiry = offer.expiry;
    let offer = Signed::sign(offer, key);
    let cast: CastId = offer.value().id(&offer.signer());
    let offer = offer.encode();
    let mut telling = JoinSet::new();
    for receiver in receivers {
        let pass = Signed::sign(Pass { cast, to: receiver.clone(), expiry }, key).encode();
        let opening = Opening::Offer { offer: offer.clone(), pass };
        let dialer = dialer.clone();
        telling.spawn(async move {
            let notified = notify(&dialer, &receiver, &opening).await;
            let is_gone = matches!(notified, Err(NoticeError::Gone(_)));
            ReceiverNotice { receiver, why: notified.err().map(|why| why.to_string()), is_gone }
        });
    }
    let mut notices = Vec::new();
    while let Some(one) = telling.join_next().await {
        // The tasks do not panic.
        notices.extend(one);
    }
    notices.sort_by(|a, b| a.receiver.cmp(&b.receiver));
    notices
}

/// Why a receiver was not told.
#[derive(Debug, Error)]
enum NoticeError {
    #[error("{0}")]
    Gone(RouteNameError),
    #[error("{0}")]
    Unreached(DialMemberError),
    #[error("it answered: {0}")]
    Refused(Refusal),
    #[error("{0}")]
    Lost(#[from] io::Error),
}

async fn notify(
    dialer: &MemberDialer,
    receiver: &Name,
    opening: &Opening,
) -> Result<(), NoticeError> {
    let channel = dialer.channel(receiver, &[], Protocol::Cast).await;
    let channel = channel.map_err(|why| match why {
        DialMemberError::Name(why) if is_for_good(&why) => NoticeError::Gone(why),
        why => NoticeError::Unreached(why),
    })?;
    let mut leg = match leg::open(channel, opening).await? {
        Err(why) if why.holds_nothing() => return Ok(()),
        leg => leg.map_err(NoticeError::Refused)?,
    };
    leg.writer.write_message(&SourceMessage::Forget).await?;
    // The receiver closes the channel once the data is removed, and reports a failure before.
    loop {
        let heard = timeout(REPORT_TIMEOUT, leg.reader.read_message::<Report>(MAX_REPORT)).await;
        match heard
            .map_err(|_| {
                io::Error::other(format!("no report from the receiver for {REPORT_TIMEOUT:?}"))
            })?
            .map(Report::cut)
        {
            Ok(Report::Ended(ReceiverOutcome::Failed(why @ Refusal::Unremoved(_)), _)) => {
                return Err(NoticeError::Refused(why));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    leg.writer.close().await;
    Ok(())
}

fn is_for_good(why: &RouteNameError) -> bool {
    matches!(
        why,
        RouteNameError::Unknown { .. }
            | RouteNameError::NoNode(_)
            | RouteNameError::NoNodeAddress(_)
    )
}
