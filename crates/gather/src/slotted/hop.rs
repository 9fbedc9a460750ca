//! A transfer to an intermediate: the intermediate fetches, and reports the end to this host.

use super::{
    failure_record::Suspect,
    parcel::{Parcel, Proof},
    pool::RequestError,
    schedule_state::ScheduleState,
    source_transfer::TransferResult,
};
use std::{sync::Arc, time::Duration};
use thalweg_wire::object::{Failure, Reply, Request, Ticket, TransferHash};

/// Has `to` fetch the parcel from `from`; `then` is the node that will fetch it from `to`. If the transfer fails, the
/// parcel becomes empty: its data waits again, or stays with its holder.
pub async fn fetch(
    state: &Arc<ScheduleState>,
    parcel: &mut Parcel,
    (from, to): (u32, u32),
    then: Option<u32>,
) -> TransferResult {
    let id = state.id();
    let before = (parcel.holder(), parcel.id);
    let order = Request::Fetch {
        id,
        from: state.name(from).clone(),
        tickets: match parcel.onward.take() {
            Some(onward) => vec![onward],
            None => parcel.tickets.clone(),
        },
        bytes: parcel.bytes(),
        then: then.map(|then| state.name(then).clone()),
        note: state.marker().note(&parcel.parts),
    };
    let fetched = fetched(state, parcel, (from, to), &order).await;
    match fetched {
        Ok((micros, bytes)) => {
            parcel.id = id;
            // The parcel has moved on, so the previous holder can drop it.
            if let (Some(holder), id) = before {
                state.delete_at(holder, id);
            } else {
                let (state, tickets) = (state.clone(), parcel.tickets.clone());
                let source = parcel.source;
                parcel.proof = Some(tokio::spawn(proof(state, source, tickets)));
            }
            TransferResult { bytes, moving: Duration::from_micros(micros), failed: None }
        }
        Err(why) => {
            // It may hold the data despite the error.
            state.delete_at(to, id);
            let empty = Parcel::new(parcel.source, Vec::new(), before.1);
            state.abandon_parcel(std::mem::replace(parcel, empty));
            TransferResult { bytes: 0, moving: Duration::ZERO, failed: Some(why) }
        }
    }
}

/// Returns the time during which bytes moved, µs, and the number of bytes.
async fn fetched(
    state: &ScheduleState,
    parcel: &mut Parcel,
    (from, to): (u32, u32),
    order: &Request,
) -> Result<(u64, u64), String> {
    let fault = match state.ask(to, order).await {
        Ok(Reply::Fetched { parts, micros, most, ticket }) if parts.len() == parcel.parts.len() => {
            // A successful fetch from `to` shows that `to` works; its own report does not.
            state.clear_failures(Suspect::Node(from));
            state.clear_failures(Suspect::Leg(from, to));
            state.record_held(to, most);
            let came = parcel.parts.iter().zip(&parts).filter(|(_, part)| part.is_ok());
            let bytes = came.map(|(part, _)| part.bytes()).sum();
            let checks: Vec<Option<TransferHash>> = parts.into_iter().map(Result::ok).collect();
            parcel.held.push((to, checks));
            parcel.onward = ticket;
            return Ok((micros, bytes));
        }
        Ok(_) => RequestError::Unreachable("its answer does not match the request".to_owned()),
        Err(fault) => fault,
    };
    let why = format!("{}: {fault}", state.name(to));
    match fault {
        // Being full or busy is not a fault.
        RequestError::Refused(Failure::Full(_) | Failure::Busy) => {}
        RequestError::Refused(Failure::Upstream { .. }) => {
            state.record_failure(Suspect::Leg(from, to), &why)
        }
        _ => state.record_failure(Suspect::Node(to), &why),
    }
    Err(why)
}

/// Returns the source's hashes of the data it sent for these tickets.
async fn proof(state: Arc<ScheduleState>, source: u32, tickets: Vec<Ticket>) -> Proof {
    match state.ask(source, &Request::Sent(tickets)).await {
        Ok(Reply::Checks(checks)) => {
            let known: Option<Vec<_>> = checks.into_iter().collect();
            known.map(|known| known.concat())
        }
        _ => None,
    }
}
