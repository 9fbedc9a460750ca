//! A transfer from a source to this host: reads files and writes their bytes as they arrive.

use super::{failure_record::Suspect, schedule_state::ScheduleState};
use crate::{
    WatchedPath,
    reads::{fitting, request},
};
use std::{collections::VecDeque, time::Duration};
use thalweg_files::{
    inventory::Piece,
    land::LandError,
    remote::{FreshRemote, LandSink, Remote, RemoteError},
};
use thalweg_wire::mesh::Name;
use tokio::time::Instant;

/// The maximum size of a request, bytes. A large file is given back in parts of this size if they fail.
const PIECES: u64 = 4 << 20;

/// The number of outstanding requests: while one arrives, the source reads the next from disk.
const AHEAD: usize = 3;

/// The result of a transfer.
#[derive(Debug)]
pub struct TransferResult {
    /// Bytes that arrived.
    pub bytes: u64,
    /// The time from the first message on its connection to the last byte.
    pub moving: Duration,
    /// Why some data is missing.
    pub failed: Option<String>,
}

/// Why reading ended early: the connection is lost, or nothing more can be stored.
enum ReadError {
    Lost(String),
    Land(LandError),
}

impl From<RemoteError> for ReadError {
    fn from(why: RemoteError) -> Self {
        match why {
            RemoteError::Land(why) => Self::Land(why),
            why => Self::Lost(why.to_string()),
        }
    }
}

/// Requested pieces that have not arrived. Dropping it gives them back.
struct OutstandingPieces<'a> {
    state: &'a ScheduleState,
    requests: VecDeque<Vec<Piece>>,
}

impl Drop for OutstandingPieces<'_> {
    fn drop(&mut self) {
        self.state.give_back(self.requests.drain(..).flatten());
    }
}

/// Reads up to `most` bytes of a source's data on a new connection. `next` says that another transfer follows, whose
/// connection is opened meanwhile.
///
/// # Errors
/// [`LandError::All`].
pub async fn transfer(
    state: &ScheduleState,
    source: u32,
    most: u64,
    next: bool,
) -> Result<TransferResult, LandError> {
    let began = Instant::now();
    let FreshRemote { remote, spare } = match state.spares.take(state.name(source), next).await {
        Ok(fresh) => fresh,
        Err(why) => return ended(state, source, (0, began), Err(ReadError::Lost(why.to_string()))),
    };
    let (mut bytes, began) = (0, Instant::now());
    match receive_pieces(state, source, remote, most, &mut bytes).await {
        // The spare connection was closed while it was idle.
        Err(ReadError::Lost(_)) if spare && bytes == 0 => {
            transfer_via(state, source, &[], most).await
        }
        over => ended(state, source, (bytes, began), over),
    }
}

/// Reads the same through these relays: the connection is end to end between the source and this host.
///
/// # Errors
/// [`LandError::All`].
pub async fn transfer_via(
    state: &ScheduleState,
    source: u32,
    via: &[Name],
    most: u64,
) -> Result<TransferResult, LandError> {
    let (mut bytes, began) = (0, Instant::now());
    let over = match Remote::open(&state.context.dialer, state.name(source), via).await {
        Ok(remote) => {
            let path = WatchedPath { member: state.name(source).clone(), via: via.to_vec() };
            state.context.connections.watch(path, remote.stream().monitor());
            receive_pieces(state, source, remote, most, &mut bytes).await
        }
        Err(why) => Err(ReadError::Lost(why.to_string())),
    };
    ended(state, source, (bytes, began), over)
}

fn ended(
    state: &ScheduleState,
    source: u32,
    (bytes, began): (u64, Instant),
    ended: Result<(), ReadError>,
) -> Result<TransferResult, LandError> {
    let moving = began.elapsed();
    match ended {
        Ok(()) => {
            state.clear_failures(Suspect::Node(source));
            Ok(TransferResult { bytes, moving, failed: None })
        }
        Err(ReadError::Land(why)) => Err(why),
        Err(ReadError::Lost(why)) => {
            state.record_failure(Suspect::Node(source), &why);
            Ok(TransferResult { bytes, moving, failed: Some(why) })
        }
    }
}

async fn receive_pieces(
    state: &ScheduleState,
    source: u32,
    mut remote: Remote,
    most: u64,
    came: &mut u64,
) -> Result<(), ReadError> {
    let mut asked = OutstandingPieces { state, requests: VecDeque::new() };
    let mut left = most;
    loop {
        while asked.requests.len() < AHEAD && left > 0 {
            let pieces = take(state, source, left.min(PIECES));
            if pieces.is_empty() {
                break;
            }
            left -= pieces.iter().map(Piece::bytes).sum::<u64>().min(left);
            let request = request(&state.context.inventory, &pieces);
            asked.requests.push_back(pieces);
            remote.ask(&request).await?;
        }
        let Some(pieces) = asked.requests.front() else { break };
        let files = ScheduleState::files(pieces);
        let starts: Vec<u64> = pieces.iter().map(|piece| piece.range.start).collect();
        let mut sink = LandSink::new(&state.context.land, &files);
        let results = remote.receive_all(&starts, &mut sink).await?;
        let pieces = asked.requests.pop_front().unwrap_or_default();
        for (piece, result) in pieces.into_iter().zip(results) {
            *came += settle(state, piece, result.err());
        }
    }
    tokio::spawn(remote.close());
    Ok(())
}

/// Takes as many pieces as fit into a request.
fn take(state: &ScheduleState, source: u32, most: u64) -> Vec<Piece> {
    let mut pieces = state.take(source, most);
    let files = pieces.iter().map(|piece| piece.file);
    let fits = fitting(&state.context.inventory, files).min(pieces.len());
    state.give_back(pieces.drain(fits..));
    pieces
}

/// Records the result of a piece. Returns the bytes that arrived.
fn settle(state: &ScheduleState, piece: Piece, failed: Option<RemoteError>) -> u64 {
    match failed {
        None => {
            state.mark_arrived(&piece);
            piece.bytes()
        }
        Some(why) if why.is_final() || matches!(why, RemoteError::Land(LandError::File { .. })) => {
            state.give_up(&piece, why.to_string());
            0
        }
        Some(_) => {
            state.give_back([piece]);
            0
        }
    }
}
