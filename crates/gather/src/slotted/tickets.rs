//! Draws tickets from a source for parcels that are about to leave it.

use super::{
    failure_record::Suspect,
    parcel::{Parcel, REQUEST, grants},
    schedule_state::ScheduleState,
};
use crate::reads::length;
use thalweg_wire::object::{DeniedGrant, Failure, Grant, Reply, Request, Ticket};

/// A grant, with the index of its parcel and of the first part it covers.
type TicketRequest = (usize, usize, Grant);

/// Draws tickets for parcels, each for the node that fetches it first, with as many grants per request as fit. A parcel
/// without tickets also loses its parts, which wait again. Parts that the source refuses to lend are given up.
pub async fn prepare(
    state: &ScheduleState,
    source: u32,
    mut parcels: Vec<(u32, Parcel)>,
) -> Vec<Parcel> {
    // Each round fails a parcel, gives it its tickets, or removes a part from it, so the loop ends.
    while parcels.iter().any(is_open) {
        if let Err(why) = round(state, source, &mut parcels).await {
            state.record_failure(Suspect::Node(source), &why);
            let open = parcels.iter_mut().filter(|parcel| is_open(parcel));
            open.for_each(|(_, parcel)| fail(state, parcel));
        }
    }
    parcels.into_iter().map(|(_, parcel)| parcel).collect()
}

fn is_open((_, parcel): &(u32, Parcel)) -> bool {
    parcel.tickets.is_empty() && !parcel.parts.is_empty()
}

fn fail(state: &ScheduleState, parcel: &mut Parcel) {
    parcel.tickets.clear();
    state.give_back(parcel.parts.drain(..));
}

/// Asks for the tickets of all parcels that have none.
async fn round(
    state: &ScheduleState,
    source: u32,
    parcels: &mut [(u32, Parcel)],
) -> Result<(), String> {
    let mut asked: Vec<TicketRequest> = Vec::new();
    for (index, (to, parcel)) in parcels.iter().enumerate().filter(|(_, p)| is_open(p)) {
        let mut first = 0;
        for grant in grants(&state.context.inventory, &parcel.parts, state.name(*to)) {
            let reads = grant.reads.len();
            asked.push((index, first, grant));
            first += reads;
        }
    }
    let mut denied = Vec::new();
    while !asked.is_empty() {
        let rest = asked.split_off(fitting(&asked));
        for (index, first, ticket) in ask(state, source, asked).await? {
            match ticket {
                Ok(ticket) => parcels[index].1.tickets.push(ticket),
                Err(why) => denied.push((index, first, why)),
            }
        }
        asked = rest;
    }
    state.clear_failures(Suspect::Node(source));
    // In reverse, so that earlier indices stay valid.
    for (index, first, why) in denied.into_iter().rev() {
        refused(state, &mut parcels[index].1, first, why);
    }
    Ok(())
}

/// Requests tickets from one source.
async fn ask(
    state: &ScheduleState,
    source: u32,
    asked: Vec<TicketRequest>,
) -> Result<Vec<(usize, usize, Result<Ticket, DeniedGrant>)>, String> {
    let mut places = Vec::with_capacity(asked.len());
    let mut all = Vec::with_capacity(asked.len());
    for (index, first, grant) in asked {
        places.push((index, first));
        all.push(grant);
    }
    match state.ask(source, &Request::Tickets(all)).await.map_err(|fault| fault.to_string())? {
        Reply::Tickets(tickets) if tickets.len() == places.len() => {
            let placed = places.into_iter().zip(tickets);
            Ok(placed.map(|((index, first), ticket)| (index, first, ticket)).collect())
        }
        _ => Err("its answer does not match the request".to_owned()),
    }
}

/// Handles a denied grant: a part that is not offered is given up; any other denial fails the parcel for now.
fn refused(state: &ScheduleState, parcel: &mut Parcel, first: usize, denied: DeniedGrant) {
    let at = first + denied.read as usize;
    match denied.why {
        why @ Failure::NotOffered(_) if at < parcel.parts.len() => {
            let part = parcel.parts.remove(at);
            state.give_up(&part, why.to_string());
            parcel.tickets.clear();
        }
        _ => fail(state, parcel),
    }
}

/// Returns the number of grants that fit into a request, at least one.
fn fitting(asked: &[TicketRequest]) -> usize {
    let mut room = REQUEST;
    let fits = asked.iter().take_while(|(_, _, grant)| {
        let bytes: usize = grant.reads.iter().map(|read| length(&read.file)).sum();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    fits.count().clamp(1, asked.len().max(1))
}
