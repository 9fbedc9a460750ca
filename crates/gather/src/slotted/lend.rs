//! Tickets of a source for what is about to leave it.

use super::{
    blame::Suspect,
    parcel::{Parcel, REQUEST, grants},
    scene::Scene,
};
use crate::reads::length;
use thalweg_wire::object::{Denied, Failure, Grant, Reply, Request, Ticket};

/// A grant, of which parcel, and the first of that's parts that it is for.
type Asked = (usize, usize, Grant);

/// Tickets of a source for parcels, each for the node that is to fetch it first: as many in a
/// request as it takes. Parcels that get none are without parts too, which wait again; what the
/// source does not lend is given up.
pub async fn prepare(scene: &Scene, source: u32, mut parcels: Vec<(u32, Parcel)>) -> Vec<Parcel> {
    // A round fails a parcel, has its tickets, or takes a part out of it.
    while parcels.iter().any(is_open) {
        if let Err(why) = round(scene, source, &mut parcels).await {
            scene.failed(Suspect::Node(source), &why);
            let open = parcels.iter_mut().filter(|parcel| is_open(parcel));
            open.for_each(|(_, parcel)| fail(scene, parcel));
        }
    }
    parcels.into_iter().map(|(_, parcel)| parcel).collect()
}

fn is_open((_, parcel): &(u32, Parcel)) -> bool {
    parcel.tickets.is_empty() && !parcel.parts.is_empty()
}

fn fail(scene: &Scene, parcel: &mut Parcel) {
    parcel.tickets.clear();
    scene.give_back(parcel.parts.drain(..));
}

/// Asks for the tickets of all parcels that have none.
async fn round(scene: &Scene, source: u32, parcels: &mut [(u32, Parcel)]) -> Result<(), String> {
    let mut asked: Vec<Asked> = Vec::new();
    for (index, (to, parcel)) in parcels.iter().enumerate().filter(|(_, p)| is_open(p)) {
        let mut first = 0;
        for grant in grants(&scene.errand.inventory, &parcel.parts, scene.name(*to)) {
            let reads = grant.reads.len();
            asked.push((index, first, grant));
            first += reads;
        }
    }
    let mut denied = Vec::new();
    while !asked.is_empty() {
        let rest = asked.split_off(fitting(&asked));
        for (index, first, ticket) in ask(scene, source, asked).await? {
            match ticket {
                Ok(ticket) => parcels[index].1.tickets.push(ticket),
                Err(why) => denied.push((index, first, why)),
            }
        }
        asked = rest;
    }
    scene.works(Suspect::Node(source));
    // From the last on, so that the indices before hold.
    for (index, first, why) in denied.into_iter().rev() {
        refused(scene, &mut parcels[index].1, first, why);
    }
    Ok(())
}

/// One request.
async fn ask(
    scene: &Scene,
    source: u32,
    asked: Vec<Asked>,
) -> Result<Vec<(usize, usize, Result<Ticket, Denied>)>, String> {
    let mut places = Vec::with_capacity(asked.len());
    let mut all = Vec::with_capacity(asked.len());
    for (index, first, grant) in asked {
        places.push((index, first));
        all.push(grant);
    }
    match scene.ask(source, &Request::Tickets(all)).await.map_err(|fault| fault.to_string())? {
        Reply::Tickets(tickets) if tickets.len() == places.len() => {
            let placed = places.into_iter().zip(tickets);
            Ok(placed.map(|((index, first), ticket)| (index, first, ticket)).collect())
        }
        _ => Err("its answer does not fit the question".to_owned()),
    }
}

/// A grant of a parcel is denied: for a part of it, which is given up, or for now.
fn refused(scene: &Scene, parcel: &mut Parcel, first: usize, denied: Denied) {
    let at = first + denied.read as usize;
    match denied.why {
        why @ Failure::NotOffered(_) if at < parcel.parts.len() => {
            let part = parcel.parts.remove(at);
            scene.give_up(&part, why.to_string());
            parcel.tickets.clear();
        }
        _ => fail(scene, parcel),
    }
}

/// How many grants a request takes; at least one.
fn fitting(asked: &[Asked]) -> usize {
    let mut room = REQUEST;
    let fits = asked.iter().take_while(|(_, _, grant)| {
        let bytes: usize = grant.reads.iter().map(|read| length(&read.file)).sum();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    fits.count().clamp(1, asked.len().max(1))
}
