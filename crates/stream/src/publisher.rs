//! Takes a publisher's frames in.

use crate::{
    Frame, Stream, class_of,
    io::{Hear, Incoming, invalid},
};
use std::{io, sync::Arc, time::Duration};
use thalweg_wire::stream::leg::{Ending, MAX_TRACKS, Said};

/// Takes frames until the publisher ends the stream, with its word or without.
///
/// # Errors
/// The connection's; a publisher that sends what cannot be.
pub async fn take(stream: &Arc<Stream>, hear: &mut Hear) -> io::Result<Ending> {
    loop {
        match hear.incoming().await? {
            Incoming::Frame(head, bytes) => {
                let class = class_of(head.class).filter(|_| usize::from(head.track) < MAX_TRACKS);
                let class = class.ok_or_else(|| invalid("a frame of no track that can be"))?;
                let time = Duration::from_micros(head.time_us);
                stream.add(Frame { track: head.track, class, time, bytes });
            }
            Incoming::Said(Said::Tracks(tracks)) => stream.set_tracks(tracks),
            Incoming::Said(Said::End(why)) => return Ok(why),
            // A publisher sends all it has.
            Incoming::Said(Said::Lost(_) | Said::Level(_) | Said::Alive) => {}
        }
    }
}
